-- Library: the sums of a UTC day and of its hours (needs shapes).
--
-- Two HASHes: of the day, with a field "user|key|provider|endpoint|model", and of its hours, whose
-- fields begin with the hour, as in "09|user|...". Each has the text "cost,calls,<tokens>,
-- <costs>,estimated,overrun,adjusted": tokens of input, cached input, cache write and output
-- (cached and written are parts of input), and what input, cached input, cache write, output and
-- fees cost. The rest of the cost was charged without usage, or adjusted.
--
-- A third HASH has the same sums of the day by label, with a field "label|value".

local SUMS = '^([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),' ..
  '([^,]+),([^,]+),([^,]+),([^,]+),(.+)$'
local SUMS_FORMAT = '%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d'

local HOURS_MS = 1296000000 -- how long hours are kept after the last new field: 15 days

-- hour_of returns the prefix of an hour's fields.
local function hour_of(now) return fmt('%02d|', floor(now / 3600000000) % 24) end

-- roll_line adds to a field. The tokens and costs are nine elements of ARGV, starting at `usage`.
-- It returns true if the field is new, and keeps the hash for `life` ms after its last new field.
-- When the hash has `most` fields, new ones are added under the model "*", or the value "(other)".
local function roll_line(key, hour, subject, most, life, usage, cost, calls, estimated, overrun, adjusted)
  local input, cached, written, output, input_cost, cached_cost, written_cost, output_cost, fees =
    unpack(ARGV, usage, usage + 8)
  local field = hour .. subject
  local old = call('HGET', key, field)
  if not old and call('HLEN', key) >= tonumber(most) then
    local start = subject:match('^[^|]*|[^|]*|')
    field = start and hour .. start .. '||*' or subject:match('^[^|]*|') .. '(other)'
    old = call('HGET', key, field)
  end
  local sums = old and { old:match(SUMS) } or { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  call('HSET', key, field, fmt(SUMS_FORMAT, sums[1] + cost, sums[2] + calls,
    sums[3] + input, sums[4] + cached, sums[5] + written, sums[6] + output,
    sums[7] + input_cost, sums[8] + cached_cost, sums[9] + written_cost, sums[10] + output_cost, sums[11] + fees,
    sums[12] + estimated, sums[13] + overrun, sums[14] + adjusted))
  if old then return false end
  call('PEXPIRE', key, life)
  return true
end

-- roll adds to the sums of a day, with roll_line's result, and to those of the hour.
local function roll(day, hours, now, subject, most, life, usage, ...)
  roll_line(hours, hour_of(now), subject, most, HOURS_MS, usage, ...)
  return roll_line(day, '', subject, most, life, usage, ...)
end

-- roll_labels adds to the sums by label of a day.
local function roll_labels(by_label, labels, ...)
  for field in labels:gmatch('[^,]+') do roll_line(by_label, '', field, ...) end
end

-- sums_of starts sums of several calls, which are written together, for the fields of a day (hour
-- is empty) or of its hours.
local function sums_of(key, hour, life) return { key = key, hour = hour, life = life, fields = {} } end

-- sums_add adds one call. New fields, and the field that sums what a full hash has no capacity for,
-- are written immediately. It returns true for a new field.
local function sums_add(sums, subject, most, usage, cost, estimated, overrun)
  local field = sums.hour .. subject
  local line = sums.fields[field]
  if line == nil then
    local old = field:sub(-3) ~= '||*' and field:sub(-7) ~= '(other)' and call('HGET', sums.key, field)
    line = old and { old:match(SUMS) }
    sums.fields[field] = line
  end
  if not line then
    return roll_line(sums.key, sums.hour, subject, most, sums.life, usage, cost, 1, estimated, overrun, 0)
  end
  line[1], line[2] = line[1] + cost, line[2] + 1
  line[12], line[13] = line[12] + estimated, line[13] + overrun
  for i = 0, 8 do
    local part = ARGV[usage + i]
    if part ~= '0' then line[3 + i] = line[3 + i] + part end
  end
end

-- sums_write stores the sums.
local function sums_write(sums)
  local lines, n = {}, 0
  for field, line in pairs(sums.fields) do
    if line then
      lines[n + 1], lines[n + 2] = field, fmt(SUMS_FORMAT, unpack(line))
      n = n + 2
    end
  end
  if n > 0 then call('HSET', sums.key, unpack(lines)) end
end
