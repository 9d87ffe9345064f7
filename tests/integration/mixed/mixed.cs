// C# that calls C, which calls C#, which calls C: for as many seconds as the argument says.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace System.Private.CoreLib { class Dummy {} }  // rebundle.py
namespace Chains {
  static class Mixed {
    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    delegate void Back();
    [DllImport("mixed", CallingConvention = CallingConvention.Cdecl)]
    static extern void mixed_enter(Back back);
    [DllImport("mixed", CallingConvention = CallingConvention.Cdecl)]
    static extern void mixed_spin();

    static readonly Back back = Inner;
    static int calls;

    [MethodImpl(MethodImplOptions.NoInlining)]  // inlined methods are not shown
    static void Inner() {
      mixed_spin();
      calls++;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Outer(int depth) {
      if (depth > 0) Outer(depth - 1);
      else mixed_enter(back);
      calls++;
    }

    static void Main(string[] arguments) {
      double seconds = double.Parse(Environment.GetEnvironmentVariable("MIXED_SECONDS"));
      DateTime end = DateTime.UtcNow.AddSeconds(seconds);
      while (DateTime.UtcNow < end) Outer(3);
    }
  }
}
