-- Library: the sums of a UTC day and of its hours (needs shapes).
--
-- Two HASHes: of the day, with a field "user|key|provider|endpoint|model", and of its hours,
-- whose fields begin with the hour, as in "09|user|...". Each has the text "cost,calls,<tokens>,
-- <costs>,estimated,overrun,adjusted": tokens of input, cached input, cache write and
-- output (cached and written are parts of input), and what input, cached input, cache
-- write, output and fees cost. What of the cost is in none of them was charged
-- without usage, or adjusted.

local SUMS = '^([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),(.+)$'
local SUMS_FORMAT = '%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d'

local HOURS_MS = 1296000000 -- how long hours are kept after the last new field: 15 days

-- hour_of begins the fields of an hour.
local function hour_of(now) return fmt('%02d|', floor(now / 3600000000) % 24) end

-- roll_line adds to a field: the tokens and costs are ARGV[u] to ARGV[u + 8]. It returns
-- true when the field is new, and keeps the hash for `life` ms after its last new field.
-- One with `most` fields adds what is new under the model "*".
local function roll_line(key, hour, subject, most, life, u, cost, calls, estimated, overrun, adjusted)
  local field = hour .. subject
  local old = call('HGET', key, field)
  if not old and call('HLEN', key) >= tonumber(most) then
    field = hour .. subject:match('^[^|]*|[^|]*|') .. '||*'
    old = call('HGET', key, field)
  end
  local a, b, c, d, e, f, g, h, i, j, k, l, m, n = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  if old then a, b, c, d, e, f, g, h, i, j, k, l, m, n = old:match(SUMS) end
  call('HSET', key, field, fmt(SUMS_FORMAT, a + cost, b + calls, c + ARGV[u], d + ARGV[u + 1], e + ARGV[u + 2],
    f + ARGV[u + 3], g + ARGV[u + 4], h + ARGV[u + 5], i + ARGV[u + 6], j + ARGV[u + 7], k + ARGV[u + 8],
    l + estimated, m + overrun, n + adjusted))
  if old then return false end
  call('PEXPIRE', key, life)
  return true
end

-- roll adds to the sums of a day, for which it is roll_line, and to those of the hour.
local function roll(day, hours, now, subject, most, life, u, ...)
  roll_line(hours, hour_of(now), subject, most, HOURS_MS, u, ...)
  return roll_line(day, '', subject, most, life, u, ...)
end
