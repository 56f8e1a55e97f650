-- Library: claims and the ends of jobs. Needs time.lua, rings.lua, publish.lua.
--
-- claimed: hash id -> "token class at_us started member"; claims: id by lease
-- end. The job hash holds everything else and belongs to one id.

-- claim_flag returns the position of `started` in the claim `rec` if the claim has this token, else
-- nil. The other functions find the remaining fields relative to it.
local function claim_flag(rec, token)
  local n = #token
  if not rec or string.sub(rec, 1, n + 1) ~= token .. ' ' then return nil end
  return string.find(rec, ' ', n + 4, true) + 1
end
local function claim_class(rec, token) return string.sub(rec, #token + 2, #token + 2) end
local function claim_at(rec, token, flag) return string.sub(rec, #token + 4, flag - 2) + 0 end
local function claim_started(rec, flag) return string.byte(rec, flag) == 49 end
local function claim_member(rec, flag) return string.sub(rec, flag + 2) end

-- claim_drop starts with ZREM, which is allowed when memory is full.
local function claim_drop(pool, id)
  redis.call('ZREM', pool.claims, id)
  redis.call('HDEL', pool.claimed, id)
  redis.call('ZREM', pool.slots, id)
end

-- cancel_code returns why a running job is to be cancelled.
local function cancel_code(pool, id)
  return redis.call('HGET', pool.cancels, id) == 'g' and 'caller_gone' or 'cancelled'
end

local function terminal(state)
  return state == 'succeeded' or state == 'failed' or state == 'cancelled' or state == 'expired'
end

-- dead_add lists a job among the dead letters, which are bounded in number and age.
local function dead_add(pool, id, now, dead)
  redis.call('ZADD', pool.dead, int(now), id)
  redis.call('ZREMRANGEBYSCORE', pool.dead, '-inf', int(now - dead.ttl_ms * 1000))
  redis.call('ZREMRANGEBYRANK', pool.dead, 0, int(-1 - dead.most))
  redis.call('PEXPIRE', pool.dead, int(dead.ttl_ms))
end

-- ended_add lists a job's end for queue.Announce, once; its reader removes it. It is for jobs that
-- request this by a notice.
local ended_keep_ms = 14 * 24 * 3600 * 1000
local function ended_add(pool, now, org, job)
  redis.call('ZADD', pool.ended, int(now), table.concat({ job.id, job.state, org, int(now), job.notice }, ' '))
  redis.call('PEXPIRE', pool.ended, ended_keep_ms)
end

-- probes_end ends the probing of a job's subjects, if any is probed.
local function probes_end(pool, now, member)
  if pool.probing == nil then pool.probing = redis.call('EXISTS', pool.probes) == 1 end
  if not pool.probing then return end
--+ flows
  local org, user, _, _, lane = member_parts(member)
  admitted(pool, now, org, user, lane)
end

-- sizes_less subtracts sums from the sizes.
local function sizes_less(pool, sums)
  local fields, set, none = {}, {}, {}
  for field in pairs(sums) do fields[#fields + 1] = field end
  local old = redis.call('HMGET', pool.size, unpack(fields))
  for k, field in ipairs(fields) do
    local left = (old[k] or 0) - sums[field]
    if left > 0 then
      set[#set + 1], set[#set + 2] = field, string.format('%d', left)
    else
      none[#none + 1] = field
    end
  end
  if #none > 0 then redis.call('HDEL', pool.size, unpack(none)) end
  if #set > 0 then redis.call('HSET', pool.size, unpack(set)) end
end

-- jobs_end writes the terminal state of each job in a list: key, id, state, class, member, bytes,
-- notice, further fields of its hash, as a flat list in fields or from ARGV `first` to `last`,
-- and dead, which makes it a dead letter: { ttl_ms, most }.
-- Writes that free memory come first.
local function jobs_end(pool, now, ttl_ms, list)
  if #list == 0 then return end
  local call, at = redis.call, string.format('%d', now)
  local ids, callers = {}, {}
  local sums, all = { jobs = #list }, 0
  for k = 1, #list do
    local job = list[k]
    ids[k] = job.id
    if job.class == '1' then callers[#callers + 1] = job.id end
  end
  call('ZREM', pool.claims, unpack(ids))
  call('HDEL', pool.claimed, unpack(ids))
  call('ZREM', pool.slots, unpack(ids))
  call('ZREM', pool.due, unpack(ids))
  call('HDEL', pool.cancels, unpack(ids))
  if #callers > 0 then call('ZREM', pool.present, unpack(callers)) end
  for k = 1, #list do
    local job = list[k]
    local member, bytes, key = job.member, job.bytes, job.key
    local till = string.find(member, ' ', 1, true)
    local org = string.sub(member, 1, till - 1)
    local flow = string.sub(member, 1, string.find(member, ' ', till + 1, true) - 1)
    if job.first then
      call('HSET', key, 'state', job.state, 'finished', at, unpack(ARGV, job.first, job.last))
    else
      call('HSET', key, 'state', job.state, 'finished', at, unpack(job.fields))
    end
    call('PEXPIRE', key, job.dead and int(math.max(job.dead.ttl_ms, ttl_ms + 0)) or ttl_ms)
    if job.dead then dead_add(pool, job.id, now, job.dead) end
    if job.notice and job.notice ~= '' then ended_add(pool, now, org, job) end
    local org_jobs, org_bytes, flow_jobs, flow_bytes = 'j ' .. org, 'b ' .. org, 'j ' .. flow, 'b ' .. flow
    sums[org_jobs], sums[org_bytes] = (sums[org_jobs] or 0) + 1, (sums[org_bytes] or 0) + bytes
    sums[flow_jobs], sums[flow_bytes] = (sums[flow_jobs] or 0) + 1, (sums[flow_bytes] or 0) + bytes
    all = all + bytes
    if pool.probing ~= false then probes_end(pool, now, member) end
    publish('lg:job:' .. job.id, 's')
  end
  sums.bytes = all
  sizes_less(pool, sums)
end

-- member_of builds a job's member from its record, which has only the parts: a hash with a value
-- above 64 bytes takes several times the memory and time.
local function member_of(id, org, user, lane, seq, tokens)
  return table.concat({ org, user, lane, seq, id, tokens }, ' ')
end

-- job_end is jobs_end for one job.
local function job_end(pool, key, id, now, state, ttl_ms, fields, dead)
  local bytes, class, notice, org, user, lane, seq, tokens = unpack(redis.call('HMGET', key,
    'bytes', 'class', 'notice', 'org', 'user', 'lane', 'seq', 'tokens'))
  jobs_end(pool, now, ttl_ms, { { key = key, id = id, state = state, fields = fields, dead = dead,
    bytes = bytes + 0, class = class, notice = notice,
    member = member_of(id, org, user, lane, seq, tokens) } })
end

-- jobs_each calls fn(key, id, token, rec, at) for the jobs of a script that takes many: KEYS 24 and
-- following, and from ARGV `from` on, for each job, the number of its arguments and the arguments,
-- the first being the id and the second the token. `at` is where they start, rec the text of the
-- job's claim. fn is called once per job; a duplicate gets the same result.
local function jobs_each(pool, from, fn)
  local keys, ids, places = { unpack(KEYS, 24) }, {}, {}
  for k = 1, #keys do
    local count, id = ARGV[from], ARGV[from + 1]
    ids[k], places[k] = id, from + 1
    from = from + count + 1
  end
  local records = redis.call('HMGET', pool.claimed, unpack(ids))
  local out, told = {}, {}
  for k = 1, #ids do
    local id, at = ids[k], places[k]
    local token = ARGV[at + 1]
    local same = id .. token
    local line = told[same]
    if not line then
      line = fn(keys[k], id, token, records[k], at)
      told[same] = line
    end
    out[k] = line
  end
  return out
end
