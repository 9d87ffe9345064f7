# Chains of which every call is known, for samples: who calls whom, from which line, is written beside each call.
#
# A caller's line is the one with the comment `# -> LABEL | LABEL`: all that can be called from there, and what methods
# written in C that are called from there call. Runs for so many seconds.

def spin(rounds)
  total = 0
  i = 0
  while i < rounds
    total += i * i # -> *
    i += 1
  end
  total
end

def even(depth)
  return spin(60) if depth.zero? # -> spin | zero?

  odd(depth - 1) # -> odd
end

def odd(depth)
  return spin(50) if depth.zero? # -> spin | zero?

  even(depth - 1) # -> even
end

def through_blocks
  [3, 4, 5].each do |x| # -> each | block in through_blocks
    [x].each_with_index { |y, _| spin(y * 4) } # -> each_with_index | each | block (2 levels) in through_blocks | spin
  end
end

class Key
  def initialize(value)
    @value = value
  end

  attr_reader :value

  def <=>(other)
    spin(10) # -> spin
    @value - other.value
  end
end

def through_c
  keys = [3, 1, 2].map { |x| Key.new(x) } # -> map | block in through_c | new | initialize
  keys.sort_by { |key| key } # -> sort_by | each | block in through_c | <=>
end

def through_inject
  (1..9).inject { |a, b| spin(b) + a } # -> inject | each | block in through_inject | spin
end

class Made
  define_method(:made) { spin(30) } # -> spin

  def method_missing(_name)
    made # -> block in <class:Made>
  end

  def respond_to_missing?(*)
    true
  end
end

def through_missing
  object = Made.new # -> new | initialize
  object.nowhere # -> method_missing
end

class Failure < StandardError
end

def fails(depth)
  raise Failure if depth.zero? # -> zero? | raise | exception | initialize | backtrace | new

  begin
    fails(depth - 1) # -> fails
  ensure
    spin(9) # -> spin | ensure in fails
  end
end

def through_exceptions # -> rescue in through_exceptions
  fails(6) # -> fails
rescue Failure # -> ===
  spin(12) # -> spin
end

def endless
  Fiber.new do # -> new | initialize
    loop do # -> loop | block (2 levels) in endless
      spin(30) # -> spin
      Fiber.yield # -> yield
    end
  end
end

def through_fibers
  Fiber.new { spin(40) }.resume # -> new | initialize | resume
end

# Functions that are made, run and freed, so that one's instructions are where another's were: of two kinds, whose names
# say which of the two their callee is. Their files' names are embedded in the string's object, or not.
def made_spin_a
  spin(40) # -> spin
end

def made_spin_b
  spin(40) # -> spin
end

def make(number)
  kind = number.even? ? 'a' : 'b' # -> even?
  number /= 2
  eval("#{"\n" * (number % 7)}made_#{kind} = lambda { made_spin_#{kind} }; made_#{kind}.call", nil, "#{'/of/a/length/' * (number % 3)}made_#{kind}") # -> eval | make | lambda | * | even?
end

def work(seconds)
  number = 0
  fiber = endless # -> endless
  finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds # -> clock_gettime
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish # -> clock_gettime
    even(15) # -> even
    through_blocks # -> through_blocks
    through_c # -> through_c
    through_inject # -> through_inject
    through_missing # -> through_missing
    through_exceptions # -> through_exceptions
    through_fibers # -> through_fibers
    fiber.resume # -> resume
    make(number) # -> make
    number += 1
  end
end

other = Thread.new { work(ARGV[0].to_f) } # -> work
work(ARGV[0].to_f) # -> work
other.join # -> join
