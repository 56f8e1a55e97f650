-- put: new waiting jobs, each once per id. Needs time, rings.
-- KEYS 1-23 pool  24... jobs
-- ARGV 1 now  2 presence grace us  3 schema version
--      4-9 most jobs and bytes of the pool, of an org, of a flow (0 = no bound)
--      10-13 rpm tpm concurrency burst  14 channel of the pool's workers
--      then per job its number of arguments and these:
--      id, class (1-3), org, user, tokens, bytes, max age us, lane, and field, value pairs of its hash
-- The record of a job has no TTL until it has ended, however long it waits or runs.
-- Workers are woken by a message, unless handlers stay and look again anyway (acquire).
-- Reply a line per job: "ok <created us>"
--      | "full <scope> <limit> <us until the quota has taken what waits>",
-- scope in jobs, bytes, org_jobs, org_bytes, flow_jobs, flow_bytes; tokens for a job that
-- is more than its model's provider takes in a minute, as that has said
local P, now, call, fmt = pool_keys(), now_us(ARGV[1]), redis.call, string.format
local at = fmt('%d', now)

-- Each job is the place of its arguments in ARGV, and the names of what counts it.
local jobs, keys, from, sizes = {}, {}, 15, { jobs = 0, bytes = 0, t1 = 0, t2 = 0, t3 = 0 }
local fields = { 'wide', 'jobs', 'bytes', 't1', 't2', 't3' }
for k = 24, #KEYS do
  local org = ARGV[from + 3]
  local flow = org .. ' ' .. ARGV[from + 4]
  local job = { 'jobs', 'bytes', 'j ' .. org, 'b ' .. org, 'j ' .. flow, 'b ' .. flow, key = KEYS[k], flow = flow, from = from }
  for i = 3, 6 do
    local field = job[i]
    if not sizes[field] then sizes[field] = 0; fields[#fields + 1] = field end
  end
  jobs[k - 23], keys[k - 23] = job, KEYS[k]
  from = from + ARGV[from] + 1
end
local before = call('HMGET', P.size, unpack(fields))
for k = 2, #fields do
  if before[k] then sizes[fields[k]] = before[k] + 0 end
end

-- full says what refuses a job. The time is that of the quota in force, or of
-- the last minute's rate.
local function full(job, scope, limit)
--+ quota
  local q, took = quota_open(P.quota, ARGV[1], quota_limits(10)), 0
  quota_close(q)
  for _, m in ipairs(q.metrics) do
    local rate = m.pace or m.sum
    if rate > 0 then took = math.max(took, (m.name == 'r' and sizes.jobs or sizes.t1 + sizes.t2 + sizes.t3) / rate) end
  end
  return 'full ' .. scope .. ' ' .. limit .. ' ' .. int(math.max(took * 60000000, q.blk - q.now))
end

local scopes, bounds = { 'jobs', 'bytes', 'org_jobs', 'org_bytes', 'flow_jobs', 'flow_bytes' }, {}
for k = 1, 6 do
  if ARGV[3 + k] ~= '0' then bounds[#bounds + 1] = k end
end
local out, fresh, seen, changed = {}, {}, {}, {}
local known = call('EXISTS', unpack(keys)) > 0
local learned = call('HMGET', P.quota, 'tn', 'tm')
local most = (learned[1] or 0) + 0
local model = most > 0 and string.sub(learned[2], 1, 3)
for n, job in ipairs(jobs) do
  local key, bytes = job.key, ARGV[job.from + 6] + 0
  local created = seen[key] and at or known and call('HGET', key, 'created')
  if created then
    out[n] = 'ok ' .. created
  elseif most > 0 and ARGV[job.from + 5] - most > 0 and string.sub(ARGV[job.from + 8], 4) == model then
    out[n] = 'full tokens ' .. learned[1] .. ' 0'
  else
    for _, k in ipairs(bounds) do
      if sizes[job[k]] + (k % 2 == 1 and 1 or bytes) > ARGV[3 + k] + 0 then
        out[n] = full(job, scopes[k], ARGV[3 + k])
        break
      end
    end
  end
  if not out[n] then
    local t = 't' .. ARGV[job.from + 2]
    for k = 1, 6 do
      local field = job[k]
      sizes[field], changed[field] = sizes[field] + (k % 2 == 1 and 1 or bytes), true
    end
    sizes[t], changed[t] = sizes[t] + ARGV[job.from + 5], true
    seen[key], job.n = true, n
    fresh[#fresh + 1] = job
  end
end
if #fresh == 0 then return table.concat(out, '\n') end

local seq = call('HINCRBY', P.fair, 'seq', #fresh) - #fresh
local due, present, members, flows, rings, entered, age = {}, {}, { {}, {}, {} }, {}, { 'wide', 'awake' }, {}, nil
local deadline
for k, job in ipairs(fresh) do
  local f = job.from
  local id, class, org, user = ARGV[f + 1], ARGV[f + 2], ARGV[f + 3], ARGV[f + 4]
  local tokens, lane, place = ARGV[f + 5], ARGV[f + 8], fmt('%016d', seq + k)
  if age ~= ARGV[f + 7] then
    age = ARGV[f + 7]
    deadline = fmt('%d', now + age)
  end
  call('HSET', job.key, 'v', ARGV[3], 'state', 'queued', 'class', class, 'org', org, 'user', user,
    'tokens', tokens, 'bytes', ARGV[f + 6], 'created', at, 'deadline', deadline, 'attempt', '0', 'tries', '0',
    'lane', lane, 'seq', place, unpack(ARGV, f + 9, f + ARGV[f]))
  due[2 * k - 1], due[2 * k] = deadline, id
  if class == '1' then present[#present + 1], present[#present + 2] = fmt('%d', now + ARGV[2]), id end
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
call('HSET', P.size, unpack(set))
call('ZADD', P.due, unpack(due))
if #present > 0 then call('ZADD', P.present, unpack(present)) end
for c = 1, 3 do
  if #members[c] > 0 then call('ZADD', P.wait[c], unpack(members[c])) end
end

-- Flows that are in their rings, as their orgs are, cost one look together.
local there = call('HMGET', P.fair, unpack(rings))
if not there[1] then call('HSET', P.fair, 'wide', WIDE) end
for c = 1, 3 do
  local orgs, into = {}, {}
  for k, flow in ipairs(flows) do
    if flow[1] == c then orgs[#orgs + 1], into[#into + 1] = flow[2], k end
  end
  local in_ring = #orgs > 0 and call('ZMSCORE', P.orgs[c], unpack(orgs))
  for i, k in ipairs(into) do
    if not there[k + 2] or not in_ring[i] then flow_enter(P, c, flows[k][2], flows[k][3]) end
  end
end
for _, job in ipairs(fresh) do out[job.n] = 'ok ' .. at end
if (there[2] or 0) - now <= 0 then call('PUBLISH', ARGV[14], '') end
return table.concat(out, '\n')
