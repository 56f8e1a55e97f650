-- finish: the terminal states of claimed jobs; the first one of a job stands.
-- Needs time, rings, jobs.
-- KEYS 1-23 pool  24... jobs
-- ARGV 1 now  2 result TTL ms  3 TTL ms of dead letters  4 most of them  5-8 rpm tpm concurrency burst
--      then per job (jobs_each): id, token, state, how the quota was used
--      (quota_settle), dead letter (1|0), what the attempt was charged, what was held
--      for it (empty: none was started), whether that is the last attempt there was (1|0),
--      and field, value pairs for its hash, the token and what it was charged among them
-- Reply a line per job: "ok" | "lost" | "gone <state>"
local P, now, ended, settle, call = pool_keys(), now_us(ARGV[1]), {}, {}, redis.call
local out = jobs_each(P, 9, function(key, id, token, rec, at)
  local job, flag = call('HMGET', key, 'state', 'bytes', 'notice', 'spent', 'held'), claim_flag(rec, token)
  local state, charge = job[1], ARGV[at + 5]
  if state and terminal(state) then
    if flag then claim_drop(P, id) end
    if call('HGET', key, 'token') == token then return 'ok' end
    charged_late(key, state, token, charge, ARGV[at + 6])
    return 'gone ' .. state
  end
  if not flag then
    charged_late(key, state, token, charge, ARGV[at + 6])
    return 'lost'
  end
  if not state then claim_drop(P, id); return 'gone missing' end
  local before = charges(job[4], ARGV[at + 7] == '0' and job[5])
  ended[#ended + 1] = { key = key, id = id, state = ARGV[at + 2], class = claim_class(rec, token),
    member = claim_member(rec, flag), bytes = job[2] + 0, notice = job[3], first = at + 8, last = at + ARGV[at - 1] - 1,
    charged = before > 0 and before + charge,
    dead = ARGV[at + 4] == '1' and { ttl_ms = tonumber(ARGV[3]), most = tonumber(ARGV[4]) } }
  if ARGV[at + 3] ~= 'booked' then settle[#settle + 1] = { how = ARGV[at + 3], at = claim_at(rec, token, flag), member = claim_member(rec, flag) } end
  return 'ok'
end)
jobs_end(P, now, ARGV[2], ended)
if #ended > 0 and any_parked(P) then
--+ flows
  for _, job in ipairs(ended) do parks_shorten(P, now, job.member) end
end
if #settle > 0 then
--+ quota
  for _, s in ipairs(settle) do
    local _, _, _, tokens = member_parts(s.member)
    quota_settle(P.quota, ARGV[1], 5, s.how, s.at, tokens)
  end
end
return table.concat(out, '\n')
