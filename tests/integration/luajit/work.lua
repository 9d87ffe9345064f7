-- Compiled traces that are entered by a jump and by calls from C, that call C, that have many spilled values, and that
-- are left in the middle.
local function sieve(n)
  local prime, count = {}, 0
  for i = 2, n do prime[i] = true end
  for i = 2, n do
    if prime[i] then
      count = count + 1
      for j = i * i, n, i do prime[j] = false end
    end
  end
  return count
end

local function spills(n)
  local a, b, c, d, e, f, g, h, i, j, k, l = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
  local s, t, u, v, w, x = 0.5, 1.5, 2.5, 3.5, 4.5, 5.5
  for at = 1, n do
    a, b, c, d = b + at, c + a, d + b, a + c
    e, f, g, h = f + a, g + b, h + c, e + d
    i, j, k, l = j + e, k + f, l + g, i + h
    s, t, u, v, w, x = t * 0.5 + a % 7, u * 0.5 + b % 5, v * 0.5, w * 0.5, x * 0.5, s * 0.5
    a, e, i = a % 65537, e % 65537, i % 65537
    b, f, j = b % 65537, f % 65537, j % 65537
    c, g, k = c % 65537, g % 65537, k % 65537
    d, h, l = d % 65537, h % 65537, l % 65537
  end
  return a + b + c + d + e + f + g + h + i + j + k + l + s + t + u + v + w + x
end

local function strings(n)
  local parts = {}
  for at = 1, n do parts[#parts + 1] = ("%d:%x"):format(at, at * 7) .. tostring(at % 10) end
  table.sort(parts, function(left, right) -- called by C
    local sum = 0
    for at = 1, 8 do sum = sum + at end
    return left < right and sum == 36
  end)
  return #table.concat(parts)
end

local function substitutes(n)
  local text = ("word "):rep(n)
  local count = 0
  text:gsub("%w+", function(word) count = count + #word end)
  return count
end

local function protected(n)
  local failed = 0
  for at = 1, n do
    if not pcall(function() if at % 3 == 0 then error("three") end end) then failed = failed + 1 end
  end
  return failed
end

local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end

local function work(scale)
  return sieve(400 * scale) + spills(400 * scale) + strings(40 * scale) + substitutes(100 * scale) +
      protected(30 * scale) + fib(12 + scale / 8) + #require("jit").version
end

for _ = 1, 20 do work(8) end
print("READY")
io.stdout:flush()
local scale = tonumber(arg[1])
while true do
  table.sort({2, 1}, function(left, right) work(scale) return left < right end) -- all of it is called by C
end
