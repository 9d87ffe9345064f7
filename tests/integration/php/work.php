<?php
// Calls, strings, arrays, exceptions and callbacks in generated code. The argument: how much each round does.
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }

class Point {
  public $x = 1;
  function add($k) { $this->x = ($this->x * 31 + $k) % 1000003; return $this; }
}

function words($n) {
  $seen = [];
  for ($i = 0; $i < $n; $i++) $seen["k" . ($i % 97)] = ($seen["k" . ($i % 97)] ?? 0) + $i;
  ksort($seen);
  return count($seen);
}

function roots($n) {
  $sum = 0.0;
  for ($i = 0; $i < $n; $i++) {
    $sum += sqrt($i) * ($i & 3);
    if ($sum > 1e9) $sum -= 1e9;
  }
  return $sum;
}

function refuse($i) {
  if ($i % 3 == 0) throw new Exception("no");
  return $i;
}

function round_of($scale) {
  $sum = fib(10) + words(20 * $scale) + (int)roots(100 * $scale);
  $point = new Point;
  for ($i = 0; $i < 10 * $scale; $i++) $point->add($i)->add($i + 1);
  try {
    for ($i = 1; $i < 5; $i++) $sum += refuse($i);
  } catch (Exception $e) {
    $sum++;
  }
  $doubled = array_map(function ($v) { return fib($v % 5) + words(3) + $v * 2; }, range(1, 5 * $scale));
  usort($doubled, fn($a, $b) => $b <=> $a);
  return $sum + array_sum($doubled) + $point->x;
}

$scale = (int)$argv[1];
$sum = 0;
for ($i = 0; $i < 50; $i++) $sum += round_of($scale);
echo "READY\n";
while (true) $sum = array_sum(array_map('round_of', [$scale, $scale])) % 1000;
