-- refusals: adds calls that limits refused or made wait to the sums of a UTC day and of its
-- hours. Idempotent on the number of the run, which its process counts.
--
-- KEYS  1 sums of the day (HASH)  2 sums of its hours (HASH)  3 the process's last run
-- ARGV  1 number of the run  2 maximum fields of KEYS 1  3 of KEYS 2
--       4 lifetime of KEYS 1 in ms  5 of KEYS 2  6 of KEYS 3
--       per line: hour, such as 09; user|limit; refused; waited; first and last time in us
-- Fields "<user>|<limit>" and "<hour>|<user>|<limit>", with the text "refused,waited,first,last". A
-- full hash counts new lines under the user and the limit "*".
-- Reply "counted" | "again" if this run was already counted

local sums, hourly_sums, last_run = KEYS[1], KEYS[2], KEYS[3]
local run, most, hourly_most, life, hourly_life, run_life = unpack(ARGV, 1, 6)

local function add(key, field, rest, most_fields, lifetime, refused, waited, first, last)
  local old = redis.call('HGET', key, field)
  if not old and redis.call('HLEN', key) >= tonumber(most_fields) then
    field = rest
    old = redis.call('HGET', key, field)
  end
  if old then
    local had_refused, had_waited, since, till = old:match('^(%d+),(%d+),(%d+),(%d+)$')
    refused = refused + had_refused
    waited = waited + had_waited
    if since + 0 < first + 0 then first = since end
    if till + 0 > last + 0 then last = till end
  end
  redis.call('HSET', key, field, string.format('%d,%d,%s,%s', refused, waited, first, last))
  if not old then redis.call('PEXPIRE', key, lifetime) end
end

if redis.call('GET', last_run) == run then return 'again' end
redis.call('SET', last_run, run, 'PX', run_life)
for i = 7, #ARGV, 6 do
  local hour, subject, refused, waited, first, last = unpack(ARGV, i, i + 5)
  hour = hour .. '|'
  add(sums, subject, '*|*', most, life, refused, waited, first, last)
  add(hourly_sums, hour .. subject, hour .. '*|*', hourly_most, hourly_life, refused, waited, first, last)
end
return 'counted'
