# CPU-bound Perl: hashes, regular expressions, sorting, recursion.
use strict;
use warnings;
no warnings 'recursion';
my $end = time + $ARGV[0];
sub descend { my $n = shift; return $n ? 1 + descend($n - 1) : 0 }
my $rounds = 0;
while (time < $end) {
  my %count;
  for my $i (1 .. 20000) {
    my $key = "key-" . ($i * 7919 % 1009);
    $count{$key}++ if $key =~ /^(\w+)-(\d+)$/;
  }
  my @sorted = sort { $count{$a} <=> $count{$b} || $a cmp $b } keys %count;
  descend(200);
  $rounds++;
}
print "$rounds rounds\n";
