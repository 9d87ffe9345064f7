# Threads that stand still at the bottom of known stacks; prints what Ruby itself says of each, then READY, and waits.
#
# A line for each frame, innermost first: thread, label, file, line. Methods written in C have their caller's file and
# line, as everywhere in Ruby.

STANDING = Queue.new
NEVER = Queue.new

def stand
  STANDING.push(true)
  NEVER.pop
end

def recurse(depth)
  depth.zero? ? stand : recurse(depth - 1)
end

def blocks
  [1].each do |x|
    [x].each_with_index do |y, i|
      { y => i }.each_pair { |_, _| 1.times { [1].map { |z| recurse(z) } } }
    end
  end
end

class Key
  attr_reader :value

  def initialize(value)
    @value = value
  end

  def <=>(other)
    @value + other.value == 3 ? stand : 0
  end
end

def through_c
  [Key.new(1), Key.new(2)].sort_by { |key| key }
end

def reducing
  [1, 2].inject { |_, _| [3, 4].sort { |_, _| 'a'.gsub(/a/) { stand } } }
end

class Made
  define_method(:made) { |n| send(:named, n) }

  def method_missing(name, *args)
    name == :nowhere ? public_send(:made, *args) : super
  end

  def respond_to_missing?(*)
    true
  end

  def to_s
    nowhere(3)
  end

  def named(depth)
    instance_eval { lambda { |n| recurse_from(n) }.call(depth) }
  end

  def recurse_from(depth)
    Object.new.instance_exec(depth) { |n| recurse(n) }
  end
end

def made
  "#{Made.new}"
end

def evaluated
  eval("\n\ndef evaluated_inner; binding.eval('stand'); end; evaluated_inner", TOPLEVEL_BINDING, 'made_up.rb', 7)
end

def class_body
  Class.new do
    class_eval "class ::Body; stand; end", 'body.rb', 3
  end
end

def failing(depth)
  raise ArgumentError, 'down' if depth.zero?

  failing(depth - 1)
ensure
  stand if depth == 2
end

def exceptions
  failing(3)
rescue ArgumentError
  catch(:thrown) do
    begin
      [1].each { throw :thrown }
    ensure
      stand
    end
  end
end

def handled
  begin
    Integer('no')
  rescue ArgumentError
    [2].each { |n| recurse(n) }
  end
end

def after_unwinding
  100.times do |i|
    [1].each { |x| [x].each { raise 'away' if i.odd? } }
  rescue RuntimeError
    next
  end
  [1, 2, 3].each { |x| break if x == 2 }
  recurse(2)
end

def fibers
  Fiber.new { [1].each { |n| Fiber.new { recurse(n) }.resume } }.resume
end

def enumerators
  Enumerator.new { |to| to << 1; [1].each { stand } }.then { |e| e.next; e.next }
end

def lazily
  (1..2).lazy.map { |x| x + 1 }.select { |x| recurse(x) }.first
end

def internals
  loop { 1.tap { |n| recurse(n) } }
end

def called_by_name(depth)
  recurse(depth)
end

# Whether anything stands behind an optimized method, and more than one page of frames does.
def deeply
  recurse(500)
end

THREADS = %i[blocks through_c reducing made evaluated class_body exceptions handled after_unwinding fibers enumerators
             lazily internals deeply].map { |name| Thread.new { send(name) } }
THREADS << Thread.new(1, &method(:called_by_name))

# Of the main thread, too, which waits below.
asked = Thread.new do
  THREADS.size.times { STANDING.pop }
  sleep 0.05 until (THREADS + [Thread.main]).all? { |thread| thread.status == 'sleep' }
  [Thread.main, *THREADS].each do |thread|
    thread.backtrace_locations.each do |at|
      puts "#{thread.native_thread_id} #{at.label} #{at.path} #{at.lineno}"
    end
  end
  puts 'READY'
  $stdout.flush
  sleep
end

def wait_for(thread)
  [thread].each(&:join)
end
wait_for(asked)
