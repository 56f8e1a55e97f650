-- finish: sets the terminal states of claimed jobs; the first one of a job is final.
-- Needs time, rings, publish, jobs.
-- KEYS 1-23 pool (pool_keys)  24... jobs
-- ARGV 1 now  2 result TTL ms  3 TTL ms of dead letters  4 maximum number of them
--      5-9 rpm tpm concurrency burst otpm (quota_limits)
--      then per job (jobs_each): id, token, state, how the quota was used
--      (quota_settle), dead letter (1|0), and field, value pairs for its hash, the token among them
-- Reply a line per job: "ok" | "lost" | "gone <state>"
local call = redis.call
local pool = pool_keys()
local given, result_ms, dead_ms, most_dead = unpack(ARGV, 1, 4)
local LIMITS_AT, JOBS_AT = 5, 10 -- where these begin in ARGV
local now = now_us(given)
local ended, settle = {}, {}
local out = jobs_each(pool, JOBS_AT, function(key, id, token, rec, at)
  local count, _, _, to, used, dead = unpack(ARGV, at - 1, at + 4)
  local state, bytes, notice = unpack(call('HMGET', key, 'state', 'bytes', 'notice'))
  local flag = claim_flag(rec, token)
  if state and terminal(state) then
    if flag then claim_drop(pool, id) end
    if call('HGET', key, 'token') == token then return 'ok' end
    return 'gone ' .. state
  end
  if not flag then return 'lost' end
  if not state then
    claim_drop(pool, id)
    return 'gone missing'
  end
  local member = claim_member(rec, flag)
  ended[#ended + 1] = { key = key, id = id, state = to, class = claim_class(rec, token), member = member,
    bytes = bytes + 0, notice = notice, first = at + 5, last = at + count - 1,
    dead = dead == '1' and { ttl_ms = tonumber(dead_ms), most = tonumber(most_dead) } }
  if used ~= 'booked' then
    settle[#settle + 1] = { how = used, at = claim_at(rec, token, flag), member = member }
  end
  return 'ok'
end)
jobs_end(pool, now, result_ms, ended)
if #ended > 0 and any_parked(pool) then
  --+ flows
  for _, job in ipairs(ended) do parks_shorten(pool, now, job.member) end
end
if #settle > 0 then
  --+ quota
  for _, grant in ipairs(settle) do
    local _, _, _, tokens = member_parts(grant.member)
    quota_settle(pool.quota, given, LIMITS_AT, grant.how, grant.at, tokens)
  end
end
return table.concat(out, '\n')
