#!/usr/bin/python3
"""Writes Adapters.java: methods of many signatures that call each other, half of them compiled, half of them interpreted for good
(`slow...`, which -XX:CompileCommand=exclude,Adapters*::slow* keeps so), so that their calls go through HotSpot's adapters, of which
there is a pair for each sequence of basic types. Static, virtual and interface calls, method handles, lambdas, and code that is
deoptimised again and again. Usage: make_adapters.py SIGNATURES SEED"""
import random
import sys

count, seed = int(sys.argv[1]), int(sys.argv[2])
random = random.Random(seed)
BOXED = {'int': 'Integer', 'long': 'Long', 'float': 'Float', 'double': 'Double', 'Object': 'Object'}
VALUE = {'int': 'x + %d', 'long': '(long) x * %d', 'float': 'x * %d.5f', 'double': 'x / %d.25', 'Object': 'kObjects[x + %d & 7]'}


def signature(i):
    if i < 16:  # the usual ones, one type at a time
        return [list(BOXED)[i % 5]] * (i * 2 // 3)
    return [random.choice(list(BOXED)) for _ in range(random.randrange(0, 15))]


def parameters(types):
    return ''.join(f', {t} p{i}' for i, t in enumerate(types))


def arguments(types):
    return ''.join(', ' + VALUE[t] % (i + 1) for i, t in enumerate(types))


def mixed(types):
    return ' + '.join(['x'] + [f'p{i}.hashCode()' if t == 'Object' else f'(int) p{i}' for i, t in enumerate(types)])


signatures = [signature(i) for i in range(count)]
out = ['// Made by make_adapters.py.', 'import java.lang.invoke.*;', '', 'public class Adapters {',
       '  static final Object[] kObjects = {"a", "b", 3, 4L, 5.0, 6.0f, "g", \'h\'};', '  static volatile long sink;',
       '  static int calls;', '  interface Shape {']
for i, types in enumerate(signatures):
    out.append(f'    int face{i}(int depth, int x{parameters(types)});')
out.append('  }')


def call(kind, to):
    """An expression that calls a method of signature `to`, fast or slow."""
    how = random.choice(['static', 'virtual', 'interface', 'handle'])
    args = f'depth - 1, x{arguments(signatures[to])}'
    if how == 'static':
        return f'{kind}{to}({args})'
    if how == 'virtual':
        return f'kThings[x & 3].{kind}Virtual{to}({args})'
    if how == 'interface':
        return f'kShapes[x + 1 & 3].face{to}({args})'
    return f'(int) kHandles[{2 * to + (kind == "slow")}].invokeExact({args})'


def body(kind, types):
    other = {'fast': 'slow', 'slow': 'fast'}[kind]
    to = [random.randrange(count) for _ in range(3)]
    spoiled = '    if (depth == 1 && ++calls % 4096 == 0) x += spoil(x);\n' if kind == 'fast' else ''
    return (f'    if (depth <= 0) return {mixed(types)};\n{spoiled}    switch (x & 3) {{\n'
            f'      case 0: return 1 + {call(other, to[0])};\n      case 1: return 2 + {call(kind, to[1])};\n'
            f'      default: return 3 + {call(other, to[2])};\n    }}')


def method(head, kind, types):
    out.append(f'  {head} throws Throwable {{\n{body(kind, types)}\n  }}')


# The interface's methods may throw nothing that is checked: they go on by static calls.
for i, types in enumerate(signatures):
    for kind in ('fast', 'slow'):
        method(f'static int {kind}{i}(int depth, int x{parameters(types)})', kind, types)
out.append('  static class Thing {')
for i, types in enumerate(signatures):
    for kind in ('fast', 'slow'):
        method(f'int {kind}Virtual{i}(int depth, int x{parameters(types)})', kind, types)
out.append('  }\n  static class Other extends Thing {')
for i, types in enumerate(signatures[::3]):
    method(f'int fastVirtual{3 * i}(int depth, int x{parameters(types)})', 'fast', types)
out.append('  }')
out.append('''  static <T extends Throwable> RuntimeException passed(Throwable t) throws T { throw (T) t; }''')
for kind in ('fast', 'slow'):
    name = f'Shape{kind.capitalize()}'
    prefix = 'fast' if kind == 'fast' else 'slow'
    out.append(f'  static class {name} implements Shape {{')
    for i, types in enumerate(signatures):
        passed = ''.join(f', p{k}' for k in range(len(types)))
        out.append(f'    public int face{i}(int depth, int x{parameters(types)}) {{\n'
                   f'      try {{ return {prefix}{i}(depth - 1, x{passed}); }} catch (Throwable t) {{ throw Adapters.<RuntimeException>passed(t); }}\n    }}')
    out.append('  }')
handles = []
for i, types in enumerate(signatures):
    classes = ''.join(f', {t}.class' for t in types)
    for kind in ('fast', 'slow'):
        handles.append(f'find("{kind}{i}", MethodType.methodType(int.class, int.class, int.class{classes}))')
out.append('''  static final Thing[] kThings = {new Thing(), new Other(), new Thing(), new Other()};
  static final Shape[] kShapes = {new ShapeFast(), new ShapeSlow(), new ShapeFast(), new ShapeSlow()};
  static MethodHandle find(String name, MethodType type) {
    try { return MethodHandles.lookup().findStatic(Adapters.class, name, type); } catch (ReflectiveOperationException e) { throw new Error(e); }
  }
  static final MethodHandle[] kHandles = {
    ''' + ',\n    '.join(handles) + '''};
  // What compilers take for granted here does not hold for long: compiled methods are given up, and made anew.
  interface Rule { int of(int x); }
  static Rule rule = x -> x + 1;
  static int spoil(int x) {
    final int turn = calls >> 12;
    switch (turn % 3) {
      case 0: rule = y -> y + turn; break;
      case 1: rule = new Rule() { public int of(int y) { return y * turn; } }; break;
      default: rule = Integer::bitCount;
    }
    return rule.of(x) & 3;
  }
  static int slowStart(int x) throws Throwable {
    switch (x % COUNT) {
CASES
    }
    return 0;
  }
  static void work(double seconds) throws Throwable {
    long end = System.nanoTime() + (long) (seconds * 1e9);
    for (int i = 0; System.nanoTime() < end; ++i) sink += slowStart(i & 0xffff);
  }
  public static void main(String[] arguments) throws Throwable {
    work(Double.parseDouble(arguments[1]));
    if (arguments[0].equals("work")) return;
    System.out.println("READY");
    System.out.flush();
    work(1e6);
  }
}'''.replace('COUNT', str(count)).replace('CASES', '\n'.join(
    f'      case {i}: return fast{i}(6, x{arguments(types)});' for i, types in enumerate(signatures))))
print('\n'.join(out))
