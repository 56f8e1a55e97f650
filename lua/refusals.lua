-- refusals: adds calls that were refused or made wait to the sums of a UTC day and of its hours, and
-- records some of them. Idempotent on the number of the run, which its process counts.
--
-- KEYS  1 sums of the day (HASH)  2 sums of its hours (HASH)  3 the process's last run
--       4 records of calls (HASH)  5 their times in us (ZSET)
-- ARGV  1 number of the run  2 maximum fields of KEYS 1  3 of KEYS 2
--       4 lifetime of KEYS 1 in ms  5 of KEYS 2  6 of KEYS 3  7 of KEYS 4 and 5
--       8 maximum bytes of KEYS 4 and 5  9 time in us of the oldest call that is kept  10 bytes of a call in
--       addition to its text  11 number of calls
--       per call: id; time in us; text
--       per line: hour, such as 09; user|key|cause; refused; waited; first and last time in us. One or
--       more less than before is a negative number, which may arrive before the call that it takes back.
-- Fields "<user>|<key>|<cause>" and "<hour>|<user>|<key>|<cause>", with the text
-- "refused,waited,first,last", where sums can be below 0. A full hash counts new lines under the user and
-- the cause "*". In KEYS 4 the field "" has the bytes of all calls.
-- Reply "<bytes of calls>" | "again" if this run was already counted

local sums, hourly_sums, last_run, calls, times = unpack(KEYS)
local run, most, hourly_most, life, hourly_life, run_life = unpack(ARGV, 1, 6)
local calls_life, most_bytes, oldest, overhead, count = unpack(ARGV, 7, 11)
local CALLS_AT = 12

local function add(key, field, rest, most_fields, lifetime, refused, waited, first, last)
  local old = redis.call('HGET', key, field)
  if not old and redis.call('HLEN', key) >= tonumber(most_fields) then
    field = rest
    old = redis.call('HGET', key, field)
  end
  if old then
    local had_refused, had_waited, since, till = old:match('^(-?%d+),(-?%d+),(%d+),(%d+)$')
    refused = refused + had_refused
    waited = waited + had_waited
    if since + 0 < first + 0 then first = since end
    if till + 0 > last + 0 then last = till end
  end
  if refused + 0 == 0 and waited + 0 == 0 then
    redis.call('HDEL', key, field)
    return
  end
  redis.call('HSET', key, field, string.format('%d,%d,%s,%s', refused, waited, first, last))
  if not old then redis.call('PEXPIRE', key, lifetime) end
end

local bytes = tonumber(redis.call('HGET', calls, '') or 0)

local function drop(id)
  local text = redis.call('HGET', calls, id)
  if text then bytes = bytes - #text - overhead end
  redis.call('HDEL', calls, id)
  redis.call('ZREM', times, id)
end

local function keep(id, at, text)
  local before = redis.call('ZSCORE', times, id)
  if before and before + 0 > at + 0 then return end
  drop(id)
  redis.call('HSET', calls, id, text)
  redis.call('ZADD', times, at, id)
  bytes = bytes + #text + overhead
end

-- trim drops what is too old. When the records are full, no user and cause keeps more than a share of them: the
-- oldest of those above it are dropped, down to 90 % of the bytes, so that a loop leaves the records of others.
local function trim()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', times, '-inf', oldest)) do drop(id) end
  while bytes > tonumber(most_bytes) do
    local ids = redis.call('ZRANGE', times, 0, -1)
    if #ids == 0 then
      bytes = 0
      return
    end
    local of, counts, kinds = {}, {}, 0
    for i, text in ipairs(redis.call('HMGET', calls, unpack(ids))) do
      local cause, user = tostring(text):match('^{"cause":"(.-)".-"user":"(.-)"')
      of[i] = tostring(user) .. '|' .. tostring(cause)
      if not counts[of[i]] then kinds = kinds + 1 end
      counts[of[i]] = (counts[of[i]] or 0) + 1
    end
    local share = 0.9 * #ids / kinds
    for i, id in ipairs(ids) do
      if counts[of[i]] > share and bytes > 0.9 * most_bytes then
        counts[of[i]] = counts[of[i]] - 1
        drop(id)
      end
    end
  end
end

if redis.call('GET', last_run) == run then return 'again' end
redis.call('SET', last_run, run, 'PX', run_life)
local lines_at = CALLS_AT + 3 * count
for i = CALLS_AT, lines_at - 1, 3 do keep(unpack(ARGV, i, i + 2)) end
if count + 0 > 0 then
  trim()
  redis.call('HSET', calls, '', string.format('%d', bytes))
  redis.call('PEXPIRE', calls, calls_life)
  redis.call('PEXPIRE', times, calls_life)
end
for i = lines_at, #ARGV, 6 do
  local hour, subject, refused, waited, first, last = unpack(ARGV, i, i + 5)
  hour = hour .. '|'
  add(sums, subject, '*|*', most, life, refused, waited, first, last)
  add(hourly_sums, hour .. subject, hour .. '*|*', hourly_most, hourly_life, refused, waited, first, last)
end
return string.format('%d', bytes)
