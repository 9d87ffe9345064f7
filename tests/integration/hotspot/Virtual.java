// Virtual threads that sleep, yield and wait for a monitor at the top of chains of known depth: what they come back with is
// a frame or two, the others stay on the heap. JDK 21 and later.
public class Virtual {
  static volatile long sink;
  static int spin(int n) {
    int x = n;
    for (int i = 0; i < 300; ++i) x = x * 31 + i;
    return x;
  }
  static int left(int n) { return n == 0 ? spin(n) : right(n - 1) + 1; }
  static int right(int n) { return n == 0 ? spin(n) : left(n - 1) + 2; }
  static int waits(int n) throws Exception {
    if (n > 0) return waits(n - 1) + left(n % 7);
    Thread.sleep(1);
    Thread.yield();
    synchronized (Virtual.class) {
      return right(5);
    }
  }
  public static void main(String[] arguments) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
    Thread[] threads = new Thread[50];
    for (int i = 0; i < threads.length; ++i)
      threads[i] = Thread.ofVirtual().start(() -> {
        try {
          for (int turn = 0; System.nanoTime() < end; ++turn) {
            for (int j = 0; j < 200; ++j) sink += left(j % 20);
            sink += waits(turn % 12);
          }
        } catch (Exception e) {
          throw new Error(e);
        }
      });
    for (Thread thread : threads) thread.join();
  }
}
