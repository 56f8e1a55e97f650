-- Library: waiting jobs and whose turn it is, as needed by put. Needs time.lua. flows.lua has the
-- rest.
--
-- A waiting job is one member "org user lane seq id tokens" of its class's sorted set, with score
-- 0, so that it sorts by flow (org, user), then by lane, then by age. A lane is a flow's key and
-- model, three letters of each: the unit that a limit can refuse separately. The head of a flow is
-- the oldest of its lanes' first jobs; a job that is put back gets its old place.
--
-- A lane of high or low priority has a seventh letter, h or l. Every fourth turn of a flow with jobs
-- of several priorities goes to the next lower one (lane_first in picks.lua). The seq is 9 and a
-- count. That of a job that is served by its deadline is the deadline in seconds and the end of the
-- count, so that it sorts before. Jobs put by an older version have 0 and a count.
--
-- Fairness is start-time fair queuing at two levels, the form of weighted deficit round robin that
-- needs no rounds: the org with the lowest virtual time is next, then its user with the lowest; a
-- pick advances both by the job's cost over their weight, and the user's also times PACE, so that
-- priority takes turns only from users of the same org; new ones start at the lowest time present.
-- Orgs are a sorted set by time, users one sorted set of members "org time16 user" with score 0. An
-- org or user with nothing left to run leaves when its turn comes, not before: leaving and
-- rejoining gains nothing. While the pool itself is parked ("p pool") nothing is picked, and no
-- time advances. A parked org ("o org") or flow ("u org user") is out of its ring until woken.
-- Parked lanes are skipped: those of a model in an org ("O org m") or flow ("U org user m"), of a
-- key ("K org user k") or of both ("L org user k m"). A flow whose lanes are all parked leaves its
-- ring; a member "O org m user" of shut brings it back when an org's model wakes.

-- Redis stores a hash or sorted set of up to some hundred fields or members as a list and searches
-- it, which takes up to ten times as long as a lookup in a table or tree, unless one of them has
-- more than 64 bytes. This one forces tables for size and fair, where it is the field `wide`, and a
-- tree for the users, where it sorts after all orgs.
local WIDE = '~ so long that Redis keeps what it is in as a table, and not as a list'

-- pool_keys names KEYS 1 to 23; Go lists them in the same order.
local function pool_keys()
  return {
    quota = KEYS[1], slots = KEYS[2], claims = KEYS[3], claimed = KEYS[4],
    parked = KEYS[5], probes = KEYS[6], fair = KEYS[7], size = KEYS[8],
    present = KEYS[9], due = KEYS[10], cancels = KEYS[11],
    wait = { KEYS[12], KEYS[13], KEYS[14] },
    orgs = { KEYS[15], KEYS[16], KEYS[17] },
    users = { KEYS[18], KEYS[19], KEYS[20] },
    shut = KEYS[21], dead = KEYS[22], ended = KEYS[23],
  }
end

-- slots_keep extends the lifetime of the open calls by an hour; every script that writes them calls
-- it.
local function slots_keep(key) redis.call('PEXPIRE', key, 3600000) end

local function first_with(key, prefix)
  return redis.call('ZRANGEBYLEX', key, '[' .. prefix .. ' ', '(' .. prefix .. '!', 'LIMIT', 0, 1)[1]
end

local function member_parts(member)
  local org, user, lane, seq, id, tokens = string.match(member, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  return org, user, id, tonumber(tokens), lane, seq
end

local function any_parked(pool)
  if pool.parks == nil then pool.parks = redis.call('EXISTS', pool.parked) == 1 end
  return pool.parks
end

-- MOMENT is the longest park, in us, that does not indicate when its subject has capacity again:
-- held money may be returned at any time. Go has the same number in soonPark.
local MOMENT = 1000000

-- level_of returns the priority of a lane: 1 high, 2 normal, 3 low.
local function level_of(lane)
  if #lane < 7 then return 2 end
  return string.byte(lane, 7) == 104 and 1 or 3
end

-- PACE is the factor of a user's virtual time, by level: a high job costs its user a quarter.
local PACE = { 0.25, 1, 4 }

-- high_count counts waiting interactive jobs of high priority in their org's field of size, which
-- take.lua reads.
local function high_count(pool, org, delta)
  local field = 'h ' .. org
  if redis.call('HINCRBY', pool.size, field, delta) <= 0 then redis.call('HDEL', pool.size, field) end
end

local function user_entry(org, vt, user)
  return string.format('%s %016d %s', org, vt, user)
end

local function org_enter(pool, c, org)
  if redis.call('ZSCORE', pool.orgs[c], org) then return end
  if any_parked(pool) and redis.call('ZSCORE', pool.parked, 'o ' .. org) then return end
  local low = redis.call('ZRANGE', pool.orgs[c], 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', pool.orgs[c], low and int(tonumber(low)) or '0', org)
end

-- flow_enter puts a flow with waiting jobs into the rings, unless it is parked.
local function flow_enter(pool, c, org, user)
  if any_parked(pool) and redis.call('ZSCORE', pool.parked, 'u ' .. org .. ' ' .. user) then return end
  local field = c .. ' ' .. org .. ' ' .. user
  if redis.call('HEXISTS', pool.fair, field) == 0 then
    local low = first_with(pool.users[c], org)
    local vt = low and tonumber(string.match(low, '^%S+ (%d+) ')) or 0
    redis.call('HSET', pool.fair, field, int(vt))
    redis.call('ZADD', pool.users[c], 0, user_entry(org, vt, user), 0, WIDE)
  end
  org_enter(pool, c, org)
end

-- A reserved place has a prefix that sorts after every org's id: it counts as waiting, and nothing
-- picks it.
local RESERVED = '~ '
local function place_reserve(pool, member) redis.call('ZADD', pool.wait[1], 0, RESERVED .. member) end
local function place_return(pool, member) return redis.call('ZREM', pool.wait[1], RESERVED .. member) == 1 end

-- A job whose next attempt is due later has its place reserved meanwhile, and an entry in shut, "z
-- time16 class member", which sorts by that time; the field nap of fair is the earliest of them.
local function nap_entry(c, member, till) return string.format('z %016d %d ', till, c) .. member end
local function nap_begin(pool, c, member, till)
  place_reserve(pool, member)
  redis.call('ZADD', pool.shut, 0, nap_entry(c, member, till))
  local first = redis.call('HGET', pool.fair, 'nap')
  if not first or till - first < 0 then redis.call('HSET', pool.fair, 'nap', int(till)) end
end

-- pickable returns how many jobs of a class can be picked.
local function pickable(pool, c) return redis.call('ZLEXCOUNT', pool.wait[c], '-', '(' .. RESERVED) end
