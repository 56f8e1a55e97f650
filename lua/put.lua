-- put: new waiting jobs, each once per id. Needs time, quota, flows, jobs.
-- KEYS 1-23 pool  24... jobs
-- ARGV 1 now  2 presence grace us  3 TTL ms  4 schema version
--      5-10 most jobs and bytes of the pool, of an org, of a flow (0 = no bound)
--      11-14 rpm tpm concurrency burst  then per job its number of arguments and these:
--      id, class (1-3), org, user, tokens, bytes, max age us, lane, and field, value pairs of its hash
-- Reply a line per job: "ok <created us> <jobs of the class that wait> <1: handlers are awake>"
--      | "full <scope> <limit> <us until the quota has taken what waits>",
-- scope in jobs, bytes, org_jobs, org_bytes, flow_jobs, flow_bytes
local P, now = pool_keys(), now_us(ARGV[1])
local jobs, out, sizes, fields, from = {}, {}, {}, { 'jobs', 'bytes', 't1', 't2', 't3' }, 15
for k = 24, #KEYS do
  local job = { key = KEYS[k] }
  for i = 1, tonumber(ARGV[from]) do job[i] = ARGV[from + i] end
  from = from + #job + 1
  local org, flow = job[3], job[3] .. ' ' .. job[4]
  job.flow, job.bytes = flow, tonumber(job[6])
  job.count = { 'jobs', 'bytes', 'j ' .. org, 'b ' .. org, 'j ' .. flow, 'b ' .. flow }
  for i = 3, 6 do
    local field = job.count[i]
    if not sizes[field] then sizes[field] = 0; fields[#fields + 1] = field end
  end
  jobs[#jobs + 1] = job
end
for k, n in ipairs(redis.call('HMGET', P.size, unpack(fields))) do sizes[fields[k]] = tonumber(n or 0) end

-- full says what refuses a job. The time is that of the quota in force, or of
-- the last minute's rate.
local function full(job, scope, limit)
  local q, took = quota_open(P.quota, ARGV[1], quota_limits(11)), 0
  quota_close(q)
  for _, m in ipairs(q.metrics) do
    local rate = m.pace or m.sum
    if rate > 0 then took = math.max(took, (m.name == 'r' and sizes.jobs or sizes.t1 + sizes.t2 + sizes.t3) / rate) end
  end
  return 'full ' .. scope .. ' ' .. limit .. ' ' .. int(math.max(took * 60000000, q.blk - q.now))
end

local scopes, fresh, seen, changed = { 'jobs', 'bytes', 'org_jobs', 'org_bytes', 'flow_jobs', 'flow_bytes' }, {}, {}, {}
for n, job in ipairs(jobs) do
  local created = seen[job.key] and int(now) or redis.call('HGET', job.key, 'created')
  if created then out[n] = 'ok ' .. created .. ' 0 0' end
  for k = 1, created and 0 or 6 do
    local most, add = tonumber(ARGV[4 + k]), k % 2 == 1 and 1 or job.bytes
    if most > 0 and sizes[job.count[k]] + add > most then
      out[n] = full(job, scopes[k], ARGV[4 + k])
      break
    end
  end
  if not out[n] then
    for k, field in ipairs(job.count) do
      sizes[field] = sizes[field] + (k % 2 == 1 and 1 or job.bytes)
      changed[field] = true
    end
    local t = 't' .. job[2]
    sizes[t] = sizes[t] + tonumber(job[5])
    changed[t] = true
    seen[job.key], job.n = true, n
    fresh[#fresh + 1] = job
  end
end
if #fresh == 0 then return table.concat(out, '\n') end

local seq = redis.call('HINCRBY', P.fair, 'seq', #fresh) - #fresh
local due, present, members, flows, known = {}, {}, { {}, {}, {} }, { {}, {}, {} }, {}
for k, job in ipairs(fresh) do
  local id, class, place = job[1], tonumber(job[2]), string.format('%016.0f', seq + k)
  local deadline = int(now + tonumber(job[7]))
  redis.call('HSET', job.key, 'v', ARGV[4], 'state', 'queued', 'class', job[2], 'org', job[3], 'user', job[4],
    'tokens', job[5], 'bytes', job[6], 'created', int(now), 'deadline', deadline, 'attempt', '0', 'tries', '0',
    'lane', job[8], 'seq', place, unpack(job, 9))
  redis.call('PEXPIRE', job.key, int(math.ceil(tonumber(job[7]) / 1000) + tonumber(ARGV[3])))
  due[#due + 1], due[#due + 2] = deadline, id
  if class == 1 then present[#present + 1], present[#present + 2] = int(now + tonumber(ARGV[2])), id end
  local list = members[class]
  list[#list + 1], list[#list + 2] = '0', table.concat({ job.flow, job[8], place, id, job[5] }, ' ')
  local flow = job[2] .. ' ' .. job.flow
  if not known[flow] then
    known[flow] = true
    table.insert(flows[class], { job[3], job[4] })
  end
end
local pairs_of = {}
for field in pairs(changed) do
  pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = field, int(sizes[field])
end
redis.call('HSET', P.size, unpack(pairs_of))
redis.call('ZADD', P.due, unpack(due))
if #present > 0 then redis.call('ZADD', P.present, unpack(present)) end
local waiting = {}
for c = 1, 3 do
  if #members[c] > 0 then
    redis.call('ZADD', P.wait[c], unpack(members[c]))
    waiting[c] = int(redis.call('ZCARD', P.wait[c]))
  end
end
for c = 1, 3 do flows_enter(P, c, flows[c]) end
local awake = tonumber(redis.call('HGET', P.fair, 'awake') or 0) > now and ' 1' or ' 0'
for _, job in ipairs(fresh) do
  out[job.n] = 'ok ' .. int(now) .. ' ' .. waiting[tonumber(job[2])] .. awake
end
return table.concat(out, '\n')
