// Stacks whose frames are known: the program prints its own stack as the runtime has it, then waits at the bottom; or
// works, through one chain after the other, so that samples can be told from such as there cannot be.
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.IntUnaryOperator;

public class Chains {
  interface Step { int go(int n); }

  // ---- one stack -----------------------------------------------------------------------------------------------

  static int bottom(int n) {
    StringBuilder text = new StringBuilder();
    for (StackTraceElement frame : Thread.currentThread().getStackTrace())
      text.append(frame.getClassName()).append('.').append(frame.getMethodName()).append(' ')
          .append(frame.getFileName()).append(' ').append(frame.getLineNumber()).append('\n');
    System.out.print(text);
    System.out.println("READY");
    System.out.flush();
    for (;;) {
      try {
        Thread.sleep(100000);
      } catch (InterruptedException e) {
        return n;
      }
    }
  }

  static class Box<T extends Comparable<T>> implements Step {
    final T value;
    Box(T value) { this.value = value; }
    public int go(int n) { return recurse(n) + value.compareTo(value); }
  }

  static int recurse(int n) {
    if (n > 0) return recurse(n - 1) + 1;
    IntUnaryOperator next = Chains::inFinally;
    return next.applyAsInt(n);
  }

  static int inFinally(int n) {
    try {
      if (n >= 0) throw new IllegalStateException("caught above");
    } finally {
      n += inSort(n);
    }
    return n;
  }

  static int inSort(int n) {
    List<Integer> list = new ArrayList<>(java.util.Arrays.asList(2, 1));
    list.sort(new Comparator<Integer>() {
      public int compare(Integer a, Integer b) { return bottom(a); }
    });
    return n;
  }

  // ---- work ----------------------------------------------------------------------------------------------------

  static volatile long sink;

  static int spin(int n) {
    int x = n;
    for (int i = 0; i < 300; ++i) x = x * 31 + i;
    return x;
  }
  static int left(int n) { return n == 0 ? spin(n) : right(n - 1) + 1; }
  static int right(int n) { return n == 0 ? spin(n) : left(n - 1) + 2; }
  static int alloc(int n) {
    long[] room = new long[64 + n];
    return room.length + left(n % 5);
  }
  static synchronized int locked(int n) { return right(n % 7); }
  static int deep(int n) {
    if (n == 0) throw new IllegalStateException("deep");
    return deep(n - 1) + 1;
  }
  static int thrown(int n) {
    try {
      return deep(n % 9 + 1);
    } catch (IllegalStateException e) {
      return left(3);
    }
  }
  static int text(int n) { return String.format("%d", n).hashCode() + right(n % 3); }
  static final Step[] kSteps = {Chains::left, Chains::alloc, Chains::locked, Chains::thrown, Chains::text,
                                new Box<Long>(7L) { public int go(int n) { return left(n % 6); } }};

  static void work(double seconds, Step[] steps) {
    long end = System.nanoTime() + (long) (seconds * 1e9);
    for (int i = 0; System.nanoTime() < end; ++i) sink += steps[i % steps.length].go(i % 1000);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("stack")) new Box<String>("x").go(3);
    if (arguments[0].equals("work")) {
      work(Double.parseDouble(arguments[1]), kSteps);
      return;
    }
    if (arguments[0].equals("step") || arguments[0].equals("throw")) {
      Step[] steps = arguments[0].equals("throw") ? new Step[] {Chains::thrown} : kSteps;
      work(Double.parseDouble(arguments[1]), steps);
      System.out.println("READY");
      System.out.flush();
      work(1e6, steps);
    }
  }
}
