-- finish: the terminal states of claimed jobs; the first one of a job stands.
-- Needs time, quota, flows, jobs.
-- KEYS 1-23 pool  24... jobs
-- ARGV 1 now  2 result TTL ms  3 TTL ms of dead letters  4 most of them  5-8 rpm tpm concurrency burst
--      then per job (jobs_each): id, token, state, how the quota was used
--      (quota_settle), dead letter (1|0), and field, value pairs for its hash
-- Reply a line per job: "ok" | "lost" | "gone <state>"
local P, now, ended, settle = pool_keys(), now_us(ARGV[1]), {}, {}
local out = jobs_each(P, 9, function(key, id, claim, args)
  local token = args[2]
  local job = redis.call('HMGET', key, 'state', 'token', 'bytes', 'notice')
  if job[1] and terminal(job[1]) then
    if claim and claim.token == token then claim_drop(P, id) end
    return job[2] == token and 'ok' or 'gone ' .. job[1]
  end
  if not claim or claim.token ~= token then return 'lost' end
  if not job[1] then claim_drop(P, id); return 'gone missing' end
  local fields = { 'token', token }
  for i = 6, #args do fields[#fields + 1] = args[i] end
  ended[#ended + 1] = { key = key, id = id, state = args[3], fields = fields, class = claim.class, member = claim.member,
    bytes = tonumber(job[3]), notice = job[4], dead = args[5] == '1' and { ttl_ms = tonumber(ARGV[3]), most = tonumber(ARGV[4]) } }
  if args[4] ~= 'booked' then settle[#settle + 1] = { how = args[4], claim = claim } end
  return 'ok'
end)
jobs_end(P, now, ARGV[2], ended)
for _, s in ipairs(settle) do
  local _, _, _, tokens = member_parts(s.claim.member)
  quota_settle(P.quota, ARGV[1], 5, s.how, s.claim.at, tokens)
end
return table.concat(out, '\n')
