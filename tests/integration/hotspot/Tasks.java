// Virtual threads that live for one task each: what has slept comes back whole, on whatever carrier, and returns into
// the frame that the thread was entered by. JDK 21 and later.
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Tasks {
  static volatile long sink;
  static long spin(int n) {
    long x = n;
    for (int i = 0; i < 2000; ++i) x = x * 31 + (x >>> 7) % 13;
    return x;
  }
  static long works(int n) { return n == 0 ? spin(1) : works(n - 1) + 1; }
  static long sleeps(int n) throws Exception {
    if (n > 0) return sleeps(n - 1) + 1;
    Thread.sleep(1);
    return spin(2);
  }
  public static void main(String[] arguments) throws Exception {
    long end = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
    try (var executor = Executors.newVirtualThreadPerTaskExecutor()) {
      while (System.nanoTime() < end) {
        List<Future<Long>> tasks = new ArrayList<>();
        for (int i = 0; i < 200; ++i) tasks.add(executor.submit(() -> works(20) + sleeps(10) + works(5)));
        for (Future<Long> task : tasks) sink += task.get();
      }
    }
  }
}
