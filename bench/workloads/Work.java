// CPU-bound Java: maps, streams, strings, sorting, recursion; two worker threads beside the JVM's own.
import java.util.*;
import java.util.stream.*;

public class Work {
  static int descend(int n) { return n == 0 ? 0 : 1 + descend(n - 1); }

  static void spin(double seconds) {
    long end = System.nanoTime() + (long) (seconds * 1e9);
    int rounds = 0;
    while (System.nanoTime() < end) {
      Map<String, Integer> counts = new TreeMap<>();
      for (int i = 0; i < 5000; i++) counts.merge("key-" + (i * 7919 % 1009), 1, Integer::sum);
      List<String> sorted = counts.entrySet().stream().sorted(Map.Entry.<String, Integer>comparingByValue()
          .thenComparing(Map.Entry.comparingByKey())).map(e -> e.getKey() + "=" + e.getValue()).collect(Collectors.toList());
      StringBuilder text = new StringBuilder();
      for (String s : sorted) text.append(s.replace('-', '_')).append(',');
      if (text.toString().split(",").length != sorted.size()) throw new AssertionError();
      descend(300);
      rounds++;
    }
    System.out.println(rounds + " rounds");
  }

  public static void main(String[] args) throws Exception {
    double seconds = Double.parseDouble(args[0]);
    Thread other = new Thread(() -> spin(seconds));
    other.start();
    spin(seconds);
    other.join();
  }
}
