-- take: a grant of provider quota for one live call. Needs time, quota.
-- Replays the grant when the id holds one already (a lost reply).
-- While jobs wait it leaves their share of the quota and of the open calls.
-- KEYS 1 quota  2 slots  3 waiting interactive jobs  4 claims
-- ARGV 1 now  2 id  3 org  4 user  5 tokens  6 lease us  7-10 rpm tpm concurrency burst
-- Reply "ok <at us>" | "busy <wait us, -1 = never> <reason>"
local id, tokens = ARGV[2], tonumber(ARGV[5])
local limits, lease = quota_limits(7), tonumber(ARGV[6])
local held = tonumber(redis.call('ZSCORE', KEYS[2], id) or 0)
if held > now_us(ARGV[1]) then return 'ok ' .. int(held - lease) end
if limits.t > 0 and tokens > limits.t then return 'busy -1 never' end
local q = quota_open(KEYS[1], ARGV[1], limits)
local open, full = slots_open(KEYS[2], q.now), false
if limits.conc > 0 then
  local aside = q.waiting and limits.conc > 1 and math.max(math.floor(limits.conc * q.share / 1000), 1) or 0
  full = open >= limits.conc or aside > 0 and open - redis.call('ZCARD', KEYS[4]) >= limits.conc - aside
end
local flow = ARGV[3] .. ' ' .. ARGV[4]
local first = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. flow .. ' ', '(' .. flow .. '!', 'LIMIT', 0, 1)
local wait, why = quota_wait(q, tokens, true)
if wait == 0 and first[1] then wait, why = 100000, 'flow' end
if wait == 0 and full then wait, why = 50000, 'concurrency' end
if wait > 0 then
  quota_close(q)
  return 'busy ' .. int(wait) .. ' ' .. why
end
quota_charge(q, tokens, true)
quota_close(q)
redis.call('ZADD', KEYS[2], int(q.now + lease), id)
redis.call('PEXPIRE', KEYS[2], 3600000)
return 'ok ' .. int(q.now)
