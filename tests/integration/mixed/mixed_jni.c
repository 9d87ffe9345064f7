/* The native methods of Mixed.java. */
#include <jni.h>

void mixed_spin(void);
void mixed_enter(void (*back)(void));

static __thread JNIEnv* thread;
static __thread jclass type;

__attribute__((noinline)) static void mixed_back(void) {
  (*thread)->CallStaticVoidMethod(thread, type, (*thread)->GetStaticMethodID(thread, type, "inner", "()V"));
}

JNIEXPORT void JNICALL Java_Mixed_enter(JNIEnv* env, jclass self) {
  thread = env;
  type = self;
  mixed_enter(mixed_back);
  type = 0;
}

JNIEXPORT void JNICALL Java_Mixed_spin(JNIEnv* env, jclass self) {
  (void)env, (void)self;
  mixed_spin();
  type = self;
}
