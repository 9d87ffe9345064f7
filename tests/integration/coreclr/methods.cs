// Many methods of CoreLib, over and over: what the judge steps through once all of them have been compiled.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Runtime.CompilerServices;
using System.Text;
namespace System.Private.CoreLib { class Dummy {} }  // rebundle.py
namespace Chains {
  class Methods {
    static string text = "alpha,beta,gamma,delta,epsilon";
    static int sum;
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Numbers(int i) {
      sum += (i * 3.25).ToString(CultureInfo.InvariantCulture).Length;
      sum += int.Parse((i * 7).ToString(CultureInfo.InvariantCulture), CultureInfo.InvariantCulture);
      sum += ((decimal)i / 7m).ToString(CultureInfo.InvariantCulture).Length;
      sum += i.ToString("x8").Length;
      sum += new DateTime(2020, 1, 1 + i % 28).ToString("yyyy-MM-dd", CultureInfo.InvariantCulture).Length;
      sum += TimeSpan.FromSeconds(i).ToString().Length;
      sum += Guid.Empty.ToString().Length;
    }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Strings(int i) {
      string[] parts = text.Split(',');
      Array.Sort(parts, StringComparer.Ordinal);
      sum += string.Join(";", parts).ToUpperInvariant().IndexOf("GAMMA", StringComparison.Ordinal);
      StringBuilder b = new StringBuilder();
      b.Append(i).Append(' ').Append(i.ToString("d3")).Append(parts[0]).Replace("a", "bb").Insert(0, "x");
      sum += b.ToString().Trim('x').Substring(1).GetHashCode() & 1;
      sum += Encoding.UTF8.GetString(Encoding.UTF8.GetBytes(text + "\u00e4")).Length;
      sum += Convert.ToBase64String(new byte[] { 1, 2, 3, (byte)i }).Length;
    }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Collections(int i) {
      Dictionary<string, int> d = new Dictionary<string, int>();
      foreach (string p in text.Split(',')) d[p] = i;
      List<int> l = new List<int>();
      foreach (KeyValuePair<string, int> p in d) l.Add(p.Value + p.Key.Length);
      l.Sort((x, y) => y - x);
      l.RemoveAll(x => x == 3);
      sum += l.FindIndex(x => x > 5);
      Queue<long> q = new Queue<long>(); q.Enqueue(i); q.Enqueue(2); sum += (int)q.Dequeue();
      Dictionary<long, object> e = new Dictionary<long, object>(); e[5] = "x"; e.Remove(5); sum += e.ContainsKey(5) ? 1 : 0;
    }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Exceptions(int i) { try { if (i % 50 == 49) throw new Exception("x"); } catch (Exception) { sum++; } finally { sum += 2; } }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Round(int i) { Numbers(i & 63); Strings(i); Collections(i); Exceptions(i % 40); }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Warm() { for (int begin = Environment.TickCount, i = 0; Environment.TickCount - begin < 2500; i++) Round(i); }
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Steady() { for (int i = 0; ; i++) Round(i); }
    static int Main() { Warm(); return Steady(); }
  }
}
