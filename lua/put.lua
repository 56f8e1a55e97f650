-- put: queues new jobs, each once per id. Needs time, rings, publish.
-- KEYS 1-23 pool (pool_keys)  24... jobs
-- ARGV 1 now  2 presence grace us  3 schema version
--      4-9 maximum jobs and bytes of the pool, of an org, of a flow (0 = no bound)
--      10-14 rpm tpm concurrency burst otpm (quota_limits)  15 channel of the pool's workers
--      then per job the number of its arguments and these:
--      id, class (1-3), org, user, tokens, bytes, max age us, lane, 1 if it is served by its deadline
--      (0: in order), and field, value pairs of its hash
-- The record of a job has no TTL until the job has ended, however long it waits or runs. Workers
-- are woken by a message, unless handlers are about to acquire again anyway (acquire).
-- Reply a line per job: "ok <created us>"
--      | "full <scope> <limit> <us until the quota has taken what waits>",
-- scope is one of jobs, bytes, org_jobs, org_bytes, flow_jobs, flow_bytes, or tokens for a job that
-- is more than its model's provider takes in a minute, as reported by the provider
local call, fmt = redis.call, string.format
local pool = pool_keys()
local given, grace, version = ARGV[1], ARGV[2], ARGV[3]
local bounds = { unpack(ARGV, 4, 9) }
local LIMITS_AT, JOBS_AT = 10, 16 -- where these begin in ARGV
local channel = ARGV[15]
local now = now_us(given)
local at = fmt('%d', now)

-- Each job has the position of its arguments in ARGV and the names of the fields that count it.
local jobs, keys = {}, {}
local sizes = { jobs = 0, bytes = 0, t1 = 0, t2 = 0, t3 = 0 }
local fields = { 'wide', 'jobs', 'bytes', 't1', 't2', 't3' }
local next_job = JOBS_AT
for k = 24, #KEYS do
  local key, from = KEYS[k], next_job
  local count, org, user = ARGV[from], ARGV[from + 3], ARGV[from + 4]
  local flow = org .. ' ' .. user
  local job = { 'jobs', 'bytes', 'j ' .. org, 'b ' .. org, 'j ' .. flow, 'b ' .. flow,
    key = key, flow = flow, from = from }
  for i = 3, 6 do
    local field = job[i]
    if not sizes[field] then
      sizes[field] = 0
      fields[#fields + 1] = field
    end
  end
  jobs[k - 23], keys[k - 23] = job, key
  next_job = from + count + 1
end
local before = call('HMGET', pool.size, unpack(fields))
for k = 2, #fields do
  if before[k] then sizes[fields[k]] = before[k] + 0 end
end

-- full returns a refusal of a job. The time is based on the current quota, or on the rate of the
-- last minute.
local function full(scope, limit)
  --+ quota
  local quota, took = quota_open(pool.quota, given, quota_limits(LIMITS_AT)), 0
  quota_close(quota)
  for _, metric in ipairs(quota.metrics) do
    local rate = metric.pace or metric.sum
    local waits = metric.name == 't' and sizes.t1 + sizes.t2 + sizes.t3 or sizes.jobs * quota_cost(quota, metric, 0)
    if rate > 0 then took = math.max(took, waits / rate) end
  end
  return 'full ' .. scope .. ' ' .. limit .. ' ' .. int(math.max(took * 60000000, quota.blk - quota.now))
end

local scopes = { 'jobs', 'bytes', 'org_jobs', 'org_bytes', 'flow_jobs', 'flow_bytes' }
local bounded = {}
for k = 1, 6 do
  if bounds[k] ~= '0' then bounded[#bounded + 1] = k end
end
local out, fresh, seen, changed = {}, {}, {}, {}
local known = call('EXISTS', unpack(keys)) > 0
local learned, learned_of = unpack(call('HMGET', pool.quota, 'tn', 'tm'))
local most = ARGV[LIMITS_AT + 4] == '-1' and (learned or 0) + 0 or 0 -- of input, any part may be in a cache
local model = most > 0 and string.sub(learned_of, 1, 3)
for number, job in ipairs(jobs) do
  local key, from = job.key, job.from
  local class, tokens, bytes, lane = ARGV[from + 2], ARGV[from + 5], ARGV[from + 6] + 0, ARGV[from + 8]
  local created = seen[key] and at or known and call('HGET', key, 'created')
  if created then
    out[number] = 'ok ' .. created
  elseif most > 0 and tokens - most > 0 and string.sub(lane, 4, 6) == model then
    out[number] = 'full tokens ' .. learned .. ' 0'
  else
    for _, k in ipairs(bounded) do
      if sizes[job[k]] + (k % 2 == 1 and 1 or bytes) > bounds[k] + 0 then
        out[number] = full(scopes[k], bounds[k])
        break
      end
    end
  end
  if not out[number] then
    for k = 1, 6 do
      local field = job[k]
      sizes[field], changed[field] = sizes[field] + (k % 2 == 1 and 1 or bytes), true
    end
    local class_field = 't' .. class
    sizes[class_field], changed[class_field] = sizes[class_field] + tokens, true
    seen[key], job.n = true, number
    fresh[#fresh + 1] = job
  end
end
if #fresh == 0 then return table.concat(out, '\n') end

local seq = call('HINCRBY', pool.fair, 'seq', #fresh) - #fresh
local due, present, members = {}, {}, { {}, {}, {} }
local flows, rings, entered = {}, { 'wide', 'awake' }, {}
local last_age, deadline
for k, job in ipairs(fresh) do
  local from = job.from
  local count, id, class, org, user, tokens, bytes, age, lane, by_deadline = unpack(ARGV, from, from + 9)
  if last_age ~= age then
    last_age = age
    deadline = fmt('%d', now + age)
  end
  local place = fmt('9%015d', seq + k)
  if by_deadline == '1' then
    place = fmt('%010d%06d', math.floor(deadline / 1000000 + 0.5), (seq + k) % 1000000)
  end
  call('HSET', job.key, 'v', version, 'state', 'queued', 'class', class, 'org', org, 'user', user,
    'tokens', tokens, 'bytes', bytes, 'created', at, 'deadline', deadline, 'attempt', '0', 'tries', '0',
    'lane', lane, 'seq', place, unpack(ARGV, from + 10, from + count))
  due[2 * k - 1], due[2 * k] = deadline, id
  if class == '1' then
    present[#present + 1], present[#present + 2] = fmt('%d', now + grace), id
    if level_of(lane) == 1 then high_count(pool, org, '1') end
  end
  local list = members[class + 0]
  list[#list + 1], list[#list + 2] = '0', job.flow .. ' ' .. lane .. ' ' .. place .. ' ' .. id .. ' ' .. tokens
  local ring = class .. ' ' .. job.flow
  if not entered[ring] then
    entered[ring] = true
    flows[#flows + 1], rings[#rings + 1] = { class + 0, org, user }, ring
  end
end
local set, n = {}, 0
for field in pairs(changed) do
  set[n + 1], set[n + 2] = field, fmt('%d', sizes[field])
  n = n + 2
end
if not before[1] then set[n + 1], set[n + 2] = 'wide', WIDE end
call('HSET', pool.size, unpack(set))
call('ZADD', pool.due, unpack(due))
if #present > 0 then call('ZADD', pool.present, unpack(present)) end
for c = 1, 3 do
  if #members[c] > 0 then call('ZADD', pool.wait[c], unpack(members[c])) end
end

-- One lookup covers all flows that are already in their rings, together with their orgs.
local there = call('HMGET', pool.fair, unpack(rings))
if not there[1] then call('HSET', pool.fair, 'wide', WIDE) end
for c = 1, 3 do
  local orgs, into = {}, {}
  for k, flow in ipairs(flows) do
    if flow[1] == c then orgs[#orgs + 1], into[#into + 1] = flow[2], k end
  end
  local in_ring = #orgs > 0 and call('ZMSCORE', pool.orgs[c], unpack(orgs))
  for i, k in ipairs(into) do
    if not there[k + 2] or not in_ring[i] then flow_enter(pool, c, flows[k][2], flows[k][3]) end
  end
end
for _, job in ipairs(fresh) do out[job.n] = 'ok ' .. at end
local awake = there[2]
if (awake or 0) - now <= 0 then publish(channel, '') end
return table.concat(out, '\n')
