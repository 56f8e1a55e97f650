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

-- sums_of begins sums of several calls, which are written together, to the fields of a day
-- (hour is empty) or of its hours.
local function sums_of(key, hour, life) return { key = key, hour = hour, life = life, fields = {} } end

-- sums_add adds one call. New fields, and the one that sums what a full hash has no room for,
-- are written at once. It returns true for a new field.
local function sums_add(sums, subject, most, u, cost, estimated, overrun)
  local field = sums.hour .. subject
  local s = sums.fields[field]
  if s == nil then
    local old = field:sub(-3) ~= '||*' and call('HGET', sums.key, field)
    s = old and { old:match(SUMS) }
    sums.fields[field] = s
  end
  if not s then return roll_line(sums.key, sums.hour, subject, most, sums.life, u, cost, 1, estimated, overrun, 0) end
  s[1], s[2], s[12], s[13] = s[1] + cost, s[2] + 1, s[12] + estimated, s[13] + overrun
  for i = 0, 8 do
    if ARGV[u + i] ~= '0' then s[3 + i] = s[3 + i] + ARGV[u + i] end
  end
end

-- sums_write stores them.
local function sums_write(sums)
  local lines, n = {}, 0
  for field, s in pairs(sums.fields) do
    if s then lines[n + 1], lines[n + 2], n = field, fmt(SUMS_FORMAT, unpack(s)), n + 2 end
  end
  if n > 0 then call('HSET', sums.key, unpack(lines)) end
end
