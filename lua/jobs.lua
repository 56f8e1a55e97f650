-- Library: claims and the ends of jobs. Needs time.lua, flows.lua.
--
-- claimed: hash id -> "token class at_us started member"; claims: id by lease
-- end. The job hash holds everything else and belongs to one id.

local function claim_read(rec)
  if not rec then return nil end
  local token, class, at, started, member = string.match(rec, '^(%S+) (%d) (%d+) (%d) (.+)$')
  return { token = token, class = tonumber(class), at = tonumber(at), started = started == '1', member = member }
end

local function claim_of(P, id)
  return claim_read(redis.call('HGET', P.claimed, id))
end

local function claim_text(claim)
  return table.concat({ claim.token, claim.class, int(claim.at), claim.started and '1' or '0', claim.member }, ' ')
end

-- claim_drop begins with ZREM, which works when memory is full.
local function claim_drop(P, id)
  redis.call('ZREM', P.claims, id)
  redis.call('HDEL', P.claimed, id)
  redis.call('ZREM', P.slots, id)
end

-- claims_reap puts jobs of dead workers back; at most `most` of them. One that
-- was cancelled meanwhile is due: its turn may be far away (cancel ends it).
local function claims_reap(P, now, most)
  local ids = redis.call('ZRANGEBYSCORE', P.claims, '-inf', int(now), 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    local claim = claim_of(P, id)
    claim_drop(P, id)
    if claim then
      flow_put(P, claim.class, claim.member)
      if redis.call('HEXISTS', P.cancels, id) == 1 then redis.call('ZADD', P.due, 0, id) end
    end
  end
  return #ids
end

-- cancel_code says why a running job is to be cancelled.
local function cancel_code(P, id)
  return redis.call('HGET', P.cancels, id) == 'g' and 'caller_gone' or 'cancelled'
end

local function terminal(state)
  return state == 'succeeded' or state == 'failed' or state == 'cancelled' or state == 'expired'
end

-- size_add counts jobs, for size_write.
local function size_add(P, org, user, jobs, bytes)
  local sizes, flow = P.sizes or {}, org .. ' ' .. user
  P.sizes = sizes
  for _, who in ipairs({ org, flow }) do
    sizes['j ' .. who] = (sizes['j ' .. who] or 0) + jobs
    sizes['b ' .. who] = (sizes['b ' .. who] or 0) + bytes
  end
  sizes.jobs, sizes.bytes = (sizes.jobs or 0) + jobs, (sizes.bytes or 0) + bytes
end

-- size_write writes what was counted.
local function size_write(P)
  local fields, set, none = {}, {}, {}
  for field in pairs(P.sizes or {}) do fields[#fields + 1] = field end
  if #fields == 0 then return end
  for k, old in ipairs(redis.call('HMGET', P.size, unpack(fields))) do
    local n = tonumber(old or 0) + P.sizes[fields[k]]
    if n > 0 then
      set[#set + 1] = fields[k]
      set[#set + 1] = int(n)
    else
      none[#none + 1] = fields[k]
    end
  end
  if #none > 0 then redis.call('HDEL', P.size, unpack(none)) end
  if #set > 0 then redis.call('HSET', P.size, unpack(set)) end
end

-- dead_add lists a job among the dead letters, which have a bound and an age.
local function dead_add(P, id, now, dead)
  redis.call('ZADD', P.dead, int(now), id)
  redis.call('ZREMRANGEBYSCORE', P.dead, '-inf', int(now - dead.ttl_ms * 1000))
  redis.call('ZREMRANGEBYRANK', P.dead, 0, int(-1 - dead.most))
  redis.call('PEXPIRE', P.dead, int(dead.ttl_ms))
end

-- ended_add lists a job's end for queue.Announce, once: who looks at it takes it
-- off. It is for jobs that ask for it by a notice.
local ended_keep_ms = 14 * 24 * 3600 * 1000
local function ended_add(P, now, org, job)
  if not job.notice or job.notice == '' then return end
  redis.call('ZADD', P.ended, int(now), table.concat({ job.id, job.state, org, int(now), job.notice }, ' '))
  redis.call('PEXPIRE', P.ended, ended_keep_ms)
end

-- jobs_end writes the one terminal state of each job of a list: key, id, state,
-- fields (a flat list), claim or class and member, bytes, notice, and dead, which
-- makes it a dead letter: { ttl_ms, most }. What frees memory comes first.
local function jobs_end(P, now, ttl_ms, list)
  if #list == 0 then return end
  local ids, callers = {}, {}
  for k, job in ipairs(list) do
    ids[k] = job.id
    if job.class == 1 then callers[#callers + 1] = job.id end
  end
  redis.call('ZREM', P.claims, unpack(ids))
  redis.call('HDEL', P.claimed, unpack(ids))
  redis.call('ZREM', P.slots, unpack(ids))
  redis.call('ZREM', P.due, unpack(ids))
  redis.call('HDEL', P.cancels, unpack(ids))
  if #callers > 0 then redis.call('ZREM', P.present, unpack(callers)) end
  for _, job in ipairs(list) do
    local org, user, _, _, lane = member_parts(job.member)
    redis.call('HSET', job.key, 'state', job.state, 'finished', int(now), unpack(job.fields))
    redis.call('PEXPIRE', job.key, job.dead and int(math.max(job.dead.ttl_ms, tonumber(ttl_ms))) or ttl_ms)
    if job.dead then dead_add(P, job.id, now, job.dead) end
    ended_add(P, now, org, job)
    size_add(P, org, user, -1, 0 - job.bytes)
    admitted(P, now, org, user, lane)
    redis.call('PUBLISH', 'lg:job:' .. job.id, 's')
  end
  size_write(P)
end

-- member_of makes a job's member of its record, which has only its parts: a hash
-- with a value above 64 bytes takes several times the memory and time.
local function member_of(id, org, user, lane, seq, tokens)
  return table.concat({ org, user, lane, seq, id, tokens }, ' ')
end

-- job_end is jobs_end for one.
local function job_end(P, key, id, now, state, ttl_ms, fields, dead)
  local job = redis.call('HMGET', key, 'bytes', 'class', 'notice', 'org', 'user', 'lane', 'seq', 'tokens')
  jobs_end(P, now, ttl_ms, { { key = key, id = id, state = state, fields = fields, dead = dead,
    bytes = tonumber(job[1]), class = tonumber(job[2]), notice = job[3],
    member = member_of(id, job[4], job[5], job[6], job[7], job[8]) } })
end

-- jobs_each calls fn(key, id, claim, args) for the jobs of a script that takes
-- many: KEYS[24...], and at ARGV[from...] each one's number of arguments and
-- these, of which the first is the id and the second the token. A job comes
-- once; the same again is told what fn returned.
local function jobs_each(P, from, fn)
  local jobs, ids, out, told = {}, {}, {}, {}
  for k = 24, #KEYS do
    local args = {}
    for i = 1, tonumber(ARGV[from]) do args[i] = ARGV[from + i] end
    from = from + #args + 1
    jobs[#jobs + 1], ids[#ids + 1] = args, args[1]
  end
  local records = redis.call('HMGET', P.claimed, unpack(ids))
  for k, args in ipairs(jobs) do
    local same = args[1] .. ' ' .. args[2]
    if not told[same] then told[same] = fn(KEYS[23 + k], args[1], claim_read(records[k]), args) end
    out[k] = told[same]
  end
  return out
end
