// Stacks that are known: the runtime prints them, when what is thrown at the bottom reaches nobody. Before it is thrown
// the bottom sleeps, so that somebody else can look.
//
// Base types alone: what System.Private.CoreLib has left after trimming. Every method stays one: nothing is inlined.
using System;
using System.Runtime.CompilerServices;
using System.Threading;

namespace System.Private.CoreLib { class Dummy {} }  // so that the name is in this assembly's strings: rebundle.py

namespace Chains {
  interface IStep { int Go(int depth, string text); }

  struct Pair { public long A, B, C; }

  class Bottom {
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Sleep(int ms) {
      Thread.Sleep(ms);
      throw new InvalidOperationException("the bottom");
    }
  }

  class Outer {
    public class Inner<T> : IStep {
      T value;
      public Inner(T value) { this.value = value; }
      [MethodImpl(MethodImplOptions.NoInlining)]
      public int Go(int depth, string text) { return Generic<string>(new T[] { value }, text, depth) + 1; }
      [MethodImpl(MethodImplOptions.NoInlining)]
      int Generic<U>(T[] values, U other, int depth) { return Chain.Arguments(depth, 2, 3, 4, 5, 6, 7, 8, 9.5, new Pair()) + values.Length; }
    }
  }

  // Samples of it can only be Main, Start, up to six Levels and, behind all of these, Go and Work.
  class Busy : IStep {
    long[] values = new long[64];

    [MethodImpl(MethodImplOptions.NoInlining)]
    long Work(int rounds) {
      long sum = 0;
      for (int i = 0; i < rounds; i++) sum += values[i & 63]++;
      return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Go(int depth, string text) { return (int)Work(depth * 4) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Level(int depth, IStep step) {
      if (depth == 0) return step.Go(3, null) + 1;
      return Level(depth - 1, step) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Start(int milliseconds) {
      // Two kinds of steps, so that the call stays one through a stub.
      IStep[] steps = { new Busy(), new Other() };
      int sum = 0;
      for (int begin = Environment.TickCount, i = 0; Environment.TickCount - begin < milliseconds; i++)
        sum += Level(5, steps[i & 1]);
      return sum == 1 ? 1 : 0;
    }
  }

  class Other : Busy, IStep {
    [MethodImpl(MethodImplOptions.NoInlining)]
    int IStep.Go(int depth, string text) { return depth; }
  }

  class Chain {
    static int time;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ByReference(ref int value, out long other, byte[] bytes, int[,] grid) {
      other = value;
      return Bottom.Sleep(time) + (int)other;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int LargeFrame(double x, Func<double, int> then) {
      Pair a = new Pair(), b = new Pair(), c = new Pair();
      a.A = (long)x; b.B = (long)x + 1; c.C = a.A + b.B;
      int sum = then(x);
      return sum + (int)(a.A + b.B + c.C);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Arguments(int a, long b, short c, byte d, int e, int f, int g, int h, double i, Pair pair) {
      return LargeFrame(i, AfterDelegate) + a + (int)b + c + d + e + f + g + h + (int)pair.A;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AfterDelegate(double x) {
      int value = 3;
      long other;
      return ByReference(ref value, out other, new byte[2], null) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Recursive(int depth, IStep step) {
      if (depth == 0) return step.Go(1, "x") + 1;
      return Recursive(depth - 1, step) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe int OnStack(int size, IStep step) {
      byte* room = stackalloc byte[size];
      room[0] = 1;
      return Recursive(7, step) + room[0];
    }

    // A handler is a function of its own, which the runtime calls.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InCatch(IStep step) {
      int value = 0;
      try {
        value = Throws(step);
      } catch (ArgumentException) {
        value = OnStack(100, step);
      }
      return value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Throws(IStep step) { throw new ArgumentException("the first"); }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InFinally(IStep step) {
      int value = 0;
      try {
        value = step.GetHashCode() == 0 ? 1 : 2;
      } finally {
        value += OnStack(50, step);
      }
      return value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void OnThread() { Recursive(2, new Outer.Inner<int>(1)); }

    static int Main(string[] args) {
      time = 3000;
      IStep step = new Outer.Inner<string>("value");
      string what = args.Length > 0 ? args[0] : "plain";
      if (what == "busy") return Busy.Start(time);
      if (what == "catch") return InCatch(step);
      if (what == "finally") return InFinally(step);
      if (what == "thread") {
        Thread thread = new Thread(OnThread);
        thread.Start();
        thread.Join();
        return 0;
      }
      if (what == "value") return Recursive(3, new Outer.Inner<long>(5));
      return OnStack(200, step);
    }
  }
}
