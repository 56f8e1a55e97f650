-- refusals: adds calls that limits refused or made wait to the sums of a UTC day and of its
-- hours. Idempotent on the number of the run, which its process counts.
--
-- KEYS  1 sums of the day (HASH)  2 sums of its hours (HASH)  3 the process's last run
-- ARGV  1 number of the run  2 most fields of KEYS 1  3 of KEYS 2
--       4 lifetime of KEYS 1 in ms  5 of KEYS 2  6 of KEYS 3
--       per line: hour, such as 09; user|limit; refused; waited; first and last time in us
-- Fields "<user>|<limit>" and "<hour>|<user>|<limit>", with the text "refused,waited,first,last".
-- A full hash counts what is new under the user and the limit "*".
-- Reply "counted" | "again" when this run was made before

local A = ARGV

local function add(key, hour, subject, most, life, i)
  local field = hour .. subject
  local old = redis.call('HGET', key, field)
  if not old and redis.call('HLEN', key) >= tonumber(most) then
    field = hour .. '*|*'
    old = redis.call('HGET', key, field)
  end
  local refused, waited, first, last = 0, 0, A[i + 4], A[i + 5]
  if old then
    local since, till
    refused, waited, since, till = old:match('^(%d+),(%d+),(%d+),(%d+)$')
    if since + 0 < first + 0 then first = since end
    if till + 0 > last + 0 then last = till end
  end
  redis.call('HSET', key, field, string.format('%d,%d,%s,%s', refused + A[i + 2], waited + A[i + 3], first, last))
  if not old then redis.call('PEXPIRE', key, life) end
end

if redis.call('GET', KEYS[3]) == A[1] then return 'again' end
redis.call('SET', KEYS[3], A[1], 'PX', A[6])
for i = 7, #A, 6 do
  add(KEYS[1], '', A[i + 1], A[2], A[4], i)
  add(KEYS[2], A[i] .. '|', A[i + 1], A[3], A[5], i)
end
return 'counted'
