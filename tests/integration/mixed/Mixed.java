/** Java that calls C, which calls Java, which calls C: for as many seconds as the second argument says. */
public class Mixed {
  static native void enter();

  static native void spin();

  static int calls;

  static void inner() {
    spin();
    calls++;
  }

  static void outer(int depth) {
    if (depth > 0) outer(depth - 1);
    else enter();
    calls++;
  }

  public static void main(String[] arguments) {
    System.load(arguments[0]);
    long end = System.nanoTime() + (long) (Double.parseDouble(arguments[1]) * 1e9);
    while (System.nanoTime() < end) outer(3);
  }
}
