-- Library: claims and the ends of jobs. Needs time.lua, flows.lua.
--
-- claimed: hash id -> "token class at_us started member"; claims: id by lease
-- end. The job hash holds everything else and belongs to one id.

local function claim_of(P, id)
  local rec = redis.call('HGET', P.claimed, id)
  if not rec then return nil end
  local token, class, at, started, member = string.match(rec, '^(%S+) (%d) (%d+) (%d) (.+)$')
  return { token = token, class = tonumber(class), at = tonumber(at), started = started == '1', member = member }
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

-- claims_reap puts jobs of dead workers back; at most `most` of them.
local function claims_reap(P, now, most)
  local ids = redis.call('ZRANGEBYSCORE', P.claims, '-inf', int(now), 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    local claim = claim_of(P, id)
    claim_drop(P, id)
    if claim then flow_put(P, claim.class, claim.member) end
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

local function size_add(P, org, jobs, bytes)
  local by = { jobs = jobs, bytes = bytes, ['j ' .. org] = jobs, ['b ' .. org] = bytes }
  for field, n in pairs(by) do
    if redis.call('HINCRBY', P.size, field, int(n)) <= 0 then redis.call('HDEL', P.size, field) end
  end
end

-- job_end writes the one terminal state of a job. `fields` is a flat list.
local function job_end(P, key, id, now, state, ttl_ms, fields)
  claim_drop(P, id)
  redis.call('ZREM', P.due, id)
  redis.call('HDEL', P.cancels, id)
  local job = redis.call('HMGET', key, 'org', 'user', 'bytes', 'class')
  if job[4] == '1' then redis.call('ZREM', P.present, id) end
  redis.call('HSET', key, 'state', state, 'finished', int(now), unpack(fields))
  redis.call('PEXPIRE', key, ttl_ms)
  size_add(P, job[1], -1, 0 - tonumber(job[3]))
  admitted(P, job[1], job[2])
  redis.call('PUBLISH', 'lg:job:' .. id, 's')
end
