-- Library: the clock. Scripts take time from Redis, never from a client.

-- now_us returns the time in microseconds: the test clock in `given` if it is not empty, else Redis
-- TIME.
local function now_us(given)
  if given and given ~= '' then
    return tonumber(given)
  end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- int prints a number without an exponent; tostring() would print 1e+15. Integers take a path that
-- needs a third of the time.
local function int(n)
  if n % 1 == 0 and n - 9e15 < 0 and n + 9e15 > 0 then return string.format('%d', n) end
  return string.format('%.0f', n)
end
