// Chains of calls whose names the runtime prints, and work that throws, for walkers to look at. "chain": prints the
// stack at the bottom of a chain, "READY", and stays there; "work SECONDS": all kinds of code.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text;

namespace Example {
  interface IShape { int Area(int depth); }

  class Box<T> : IShape {
    [MethodImpl(MethodImplOptions.NoInlining)]
    public int Area(int depth) { return Chains.Guarded(depth) + 1; }
  }

  static class Chains {
    static Func<int, int> next = Bottom;
    static bool stay = true;
    static int count;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Bottom(int depth) {
      foreach (StackFrame frame in new StackTrace(false).GetFrames()) {
        var method = frame.GetMethod();
        Console.WriteLine("{0}.{1}", method.DeclaringType.FullName, method.Name);
      }
      Console.WriteLine("READY");
      while (stay) ++count;
      return depth;
    }
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Guarded(int depth) {
      try {
        throw new InvalidOperationException();
      } catch (InvalidOperationException) {
        return Down(depth) + 1;
      } finally {
        ++count;
      }
    }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Down(int depth) { return depth == 0 ? next(depth) : Down(depth - 1) + 1; }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Throw(int depth) {
      try {
        if (depth == 0) throw new InvalidOperationException("bottom");
        return Throw(depth - 1) + 1;
      } finally {
        ++count;
      }
    }
    static int Caught(int times) {
      int sum = 0;
      for (int i = 0; i < times; ++i)
        try { sum += Throw(i % 12); } catch (InvalidOperationException e) { sum += e.Message.Length; }
      return sum;
    }
    static int Text(int times) {
      var text = new StringBuilder();
      for (int i = 0; i < times; ++i) text.Append(i.ToString("x")).Append(string.Format("{0}", i * 2));
      return text.Length;
    }
    static int Query(int times) {
      return Enumerable.Range(0, times).Where(x => x % 3 == 0).Select(x => x * 2).OrderBy(x => -x).Sum() % 1000;
    }
    static int Table(int times) {
      var table = new Dictionary<string, List<int>>();
      for (int i = 0; i < times; ++i) {
        List<int> list;
        string key = "k" + i % 97;
        if (!table.TryGetValue(key, out list)) table[key] = list = new List<int>();
        list.Add(i);
      }
      return table.Count;
    }
    static int Fibonacci(int n) { return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2); }

    static void Main(string[] arguments) {
      if (arguments[0] == "chain") {
        IShape shape = new Box<string>();
        shape.Area(3);
        return;
      }
      var end = DateTime.UtcNow.AddSeconds(double.Parse(arguments[1]));
      long sum = 0;
      bool ready = false;
      while (DateTime.UtcNow < end) {
        sum += Caught(100) + Text(500) + Query(500) + Table(500) + Fibonacci(15);
        if (!ready) Console.WriteLine("READY");
        ready = true;
      }
      Console.WriteLine(sum);
    }
  }
}
