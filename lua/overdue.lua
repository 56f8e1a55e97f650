-- overdue: finds jobs past their deadline or left by their caller, and recomputes the sums of a
-- pool if they do not match its jobs. Needs time, rings. No caller is judged gone for time in which
-- presence could not be renewed: after a gap between two checks, because Redis was unavailable or
-- its clock was set, all callers get another grace period.
-- KEYS 1-23 pool (pool_keys)
-- ARGV 1 now  2 maximum of each  3 presence grace us
-- Reply words "g<id>" (caller gone) and "e<id>" (expired)
local call = redis.call
local pool = pool_keys()
local given, most, grace = unpack(ARGV)
grace = tonumber(grace)
local now = now_us(given)

-- recount recomputes the sums. The bytes are only in records, some of which are gone, so every sum
-- of bytes is scaled down like that of the jobs.
local function recount()
  local flat = call('HGETALL', pool.size)
  local old, jobs, tokens, highs = {}, { jobs = 0 }, { 0, 0, 0 }, {}
  for i = 1, #flat, 2 do old[flat[i]] = tonumber(flat[i + 1]) end
  local function count(member)
    local org, user, _, size, lane = member_parts(member)
    jobs.jobs = jobs.jobs + 1
    local of_org, of_flow = 'j ' .. org, 'j ' .. org .. ' ' .. user
    jobs[of_org], jobs[of_flow] = (jobs[of_org] or 0) + 1, (jobs[of_flow] or 0) + 1
    return size, level_of(lane) == 1 and 'h ' .. org
  end
  for c = 1, 3 do
    for _, member in ipairs(call('ZRANGE', pool.wait[c], 0, -1)) do
      local reserved = string.sub(member, 1, #RESERVED) == RESERVED
      local size, high = count(reserved and string.sub(member, #RESERVED + 1) or member)
      if not reserved then
        tokens[c] = tokens[c] + size
        if c == 1 and high then highs[high] = (highs[high] or 0) + 1 end
      end
    end
  end
  for _, rec in ipairs(call('HVALS', pool.claimed)) do count(string.match(rec, '^%S+ %d %d+ %d (.+)$')) end
  call('DEL', pool.size) -- first, because it is allowed when memory is full
  if jobs.jobs == 0 then return end
  local set = { 'wide', WIDE }
  for field, n in pairs(jobs) do
    local bytes = field == 'jobs' and 'bytes' or 'b' .. string.sub(field, 2)
    local of = old[field] or 0
    set[#set + 1], set[#set + 2] = field, int(n)
    set[#set + 1], set[#set + 2] = bytes, int(math.floor((old[bytes] or 0) * n / math.max(of, n)))
  end
  for c = 1, 3 do set[#set + 1], set[#set + 2] = 't' .. c, int(tokens[c]) end
  for field, n in pairs(highs) do set[#set + 1], set[#set + 2] = field, int(n) end
  for i = 1, #set, 1000 do call('HSET', pool.size, unpack(set, i, math.min(i + 999, #set))) end
end

call('ZREM', pool.present, '') -- allowed when memory is full, and so is every write after it
local there = call('HLEN', pool.claimed)
for c = 1, 3 do there = there + call('ZCARD', pool.wait[c]) end
if (call('HGET', pool.size, 'jobs') or 0) - there ~= 0 then recount() end

local looked, blind = unpack(call('HMGET', pool.fair, 'looked', 'blind'))
blind = math.min(tonumber(blind or 0), now + grace)
if math.abs(now - tonumber(looked or 0)) > grace / 2 then blind = now + grace end
call('HSET', pool.fair, 'looked', int(now), 'blind', int(blind))
local out = {}
if blind <= now then
  for _, id in ipairs(call('ZRANGEBYSCORE', pool.present, '-inf', int(now), 'LIMIT', 0, most)) do
    out[#out + 1] = 'g' .. id
  end
end
for _, id in ipairs(call('ZRANGEBYSCORE', pool.due, '-inf', int(now), 'LIMIT', 0, most)) do
  out[#out + 1] = 'e' .. id
end
return table.concat(out, ' ')
