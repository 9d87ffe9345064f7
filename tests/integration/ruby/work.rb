# Methods, blocks, strings and exceptions in compiled code. The argument: how much each round does.
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)

def words(n)
  (1..n).map { |i| fib(i % 9) }.sort_by { |x| -x }.each_slice(3).map { |part| part.sum.to_s * 2 }.join(',').scan(/\d+/).size
end

def deep(n, &block) = n == 0 ? block.call : deep(n - 1, &block)

def refuse(n)
  raise ArgumentError, 'no' if n.odd?
  n
end

class Point
  attr_reader :x
  def initialize = @x = 1
  def add(k)
    @x = (@x * 31 + k) % 1_000_003
    self
  end
end

def round_of(scale)
  sum = words(10 * scale)
  seen = Hash.new(0)
  deep(10) { (10 * scale).times { |i| seen["k#{i % 7}"] += i } }
  point = Point.new
  (10 * scale).times { |i| point.add(i).add(i + 1) }
  begin
    sum += refuse(sum)
  rescue ArgumentError
    sum += 1
  end
  sum + seen.size + point.x
end

scale = ARGV[0].to_i
sum = 0
50.times { sum += round_of(scale) }
$stdout.sync = true
puts 'READY'
loop { sum = [scale, scale].map { |n| round_of(n) }.sum % 1000 }
