-- put: a new waiting job, once per id. Needs time, flows, jobs.
-- KEYS 1-20 pool  21 job
-- ARGV 1 now  2 id  3 class (1-3)  4 org  5 user  6 tokens  7 bytes
--      8 most jobs  9 most bytes  10 most jobs of an org  11 most bytes of an org (0 = no bound)
--      12 max age us  13 presence grace us  14 TTL ms  then field, value pairs of the job hash
-- Reply "ok <created us>" | "full <scope> <limit> <waiting tokens> <jobs>", scope
-- in jobs, bytes, org_jobs, org_bytes
local P, key, id = pool_keys(), KEYS[21], ARGV[2]
local class, org, user = tonumber(ARGV[3]), ARGV[4], ARGV[5]
local tokens, bytes = ARGV[6], tonumber(ARGV[7])
local created = redis.call('HGET', key, 'created')
if created then return 'ok ' .. created end

local have = redis.call('HMGET', P.size, 'jobs', 'bytes', 'j ' .. org, 'b ' .. org, 't1', 't2', 't3')
local scopes = { 'jobs', 'bytes', 'org_jobs', 'org_bytes' }
for k, add in ipairs({ 1, bytes, 1, bytes }) do
  local most = tonumber(ARGV[7 + k])
  if most > 0 and tonumber(have[k] or 0) + add > most then
    local waiting = tonumber(have[5] or 0) + tonumber(have[6] or 0) + tonumber(have[7] or 0)
    return 'full ' .. scopes[k] .. ' ' .. ARGV[7 + k] .. ' ' .. int(waiting) .. ' ' .. int(tonumber(have[1] or 0))
  end
end

local now = now_us(ARGV[1])
local seq = redis.call('HINCRBY', P.fair, 'seq', 1)
local member = table.concat({ org, user, string.format('%016.0f', seq), id, tokens }, ' ')
local fields = {}
for i = 15, #ARGV do fields[#fields + 1] = ARGV[i] end
local deadline = now + tonumber(ARGV[12])
redis.call('HSET', key, 'v', '1', 'state', 'queued', 'class', ARGV[3], 'org', org, 'user', user, 'tokens', tokens,
  'bytes', ARGV[7], 'created', int(now), 'deadline', int(deadline), 'attempt', '0', 'tries', '0', 'member', member,
  unpack(fields))
redis.call('PEXPIRE', key, int(math.ceil(tonumber(ARGV[12]) / 1000) + tonumber(ARGV[14])))
size_add(P, org, 1, bytes)
redis.call('ZADD', P.due, int(deadline), id)
if class == 1 then redis.call('ZADD', P.present, int(now + tonumber(ARGV[13])), id) end
flow_put(P, class, member)
return 'ok ' .. int(now)
