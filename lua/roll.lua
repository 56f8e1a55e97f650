-- Library: the sums of a UTC day (needs shapes).
--
-- HASH, a field "user|key|provider|endpoint|model" with the text "cost,calls,<tokens>,
-- <costs>,estimated,overrun,adjusted": tokens of input, cached input, cache write and
-- output (cached and written are parts of input), and what input, cached input, cache
-- write, output and fees cost. What of the cost is in none of them was charged
-- without usage, or adjusted.

local SUMS = '^([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),(.+)$'
local SUMS_FORMAT = '%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d'

-- roll adds to a field of a day: the tokens and costs are ARGV[u] to ARGV[u + 8]. It
-- returns true when the field is new, and keeps the day for `life` ms after its last
-- new field. A day with `most` fields, which only models that nobody listed can make,
-- adds what is new under the model "*".
local function roll(day, field, most, life, u, cost, calls, estimated, overrun, adjusted)
  local old = call('HGET', day, field)
  if not old and call('HLEN', day) >= tonumber(most) then
    field = field:match('^[^|]*|[^|]*|') .. '||*'
    old = call('HGET', day, field)
  end
  local a, b, c, d, e, f, g, h, i, j, k, l, m, n = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  if old then a, b, c, d, e, f, g, h, i, j, k, l, m, n = old:match(SUMS) end
  call('HSET', day, field, fmt(SUMS_FORMAT, a + cost, b + calls, c + ARGV[u], d + ARGV[u + 1], e + ARGV[u + 2],
    f + ARGV[u + 3], g + ARGV[u + 4], h + ARGV[u + 5], i + ARGV[u + 6], j + ARGV[u + 7], k + ARGV[u + 8],
    l + estimated, m + overrun, n + adjusted))
  if old then return false end
  call('PEXPIRE', day, life)
  return true
end
