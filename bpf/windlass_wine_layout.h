/* SPDX-License-Identifier: GPL-2.0-only OR MIT
 *
 * Where Wine keeps what a walk needs to get from a callback to the code that called back, x86-64.
 *
 * Its Unix side runs on a stack of its own and calls window procedures and other callbacks of the program back, on the
 * program's. Wine 8.0 (KeUserModeCallback and call_user_mode_callback in dlls/ntdll/unix/signal_x86_64.c) leaves there,
 * from above where the program's system call had rsp, rounded down to 16: the callback's arguments; below them 0, their
 * length, their address, the callback's number; and below these the mark, in place of a return address to which
 * nothing ever returns. The Unix side's stack has a frame for the system calls that the callback makes, below what
 * call_user_mode_callback has saved; it leads to the frame of the system call that called back. The frame of the moment
 * is in the thread's TEB, which is where gs begins. */

#ifndef WINDLASS_WINE_LAYOUT_H
#define WINDLASS_WINE_LAYOUT_H

#define WL_WINE_MARK 0xdeadbabeull
#define WL_WINE_CALL_BYTES 32u /* from the mark's end to the arguments: number, address, length, 0 */
#define WL_WINE_TEB_FRAME 0x328u
#define WL_WINE_FRAME_RSP 0x88u      /* the program's, in its system call */
#define WL_WINE_UNIX_STACK 0x100000u /* bytes of the Unix side's stack, at whose end the frame is */
#define WL_WINE_FRAME_BELOW 0xa0u    /* of the system call that called back; 0: there is none */
#define WL_WINE_FRAME_SAVED 0x400u   /* of a callback: call_user_mode_callback's rbp */
/* At that rbp stands the caller's, at 8 the return address, below it rbx, rsi, rdi, r12 to r15. The frame is as far
 * below as this, rounded down to 64. */
#define WL_WINE_FRAME_ROOM 0x4f0u
#define WL_WINE_SAVED_BELOW 56u
#define WL_WINE_CALLBACKS 64u /* one in another, that are looked through */

/* The TEB has the end of the thread's stack there, and behind it the begin of the part with memory, which moves down.
 */
#define WL_TEB_STACK 8u
#define WL_TEB_STACK_GROWTH 0x10000u

#endif
