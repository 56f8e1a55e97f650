-- overdue: jobs past their deadline or left by their caller; and the sums of a pool that
-- are not those of its jobs are derived from these again. Needs time, rings.
-- No caller is judged gone by a clock that ran while none could be seen: after a gap between
-- two looks, because Redis was unavailable or its clock was set, all have another grace.
-- KEYS 1-23 pool
-- ARGV 1 now  2 most of each  3 presence grace us
-- Reply words "g<id>" (caller gone) and "e<id>" (expired)
local P, now, grace, call = pool_keys(), now_us(ARGV[1]), tonumber(ARGV[3]), redis.call

-- recount derives the sums. The bytes are known to records alone, of which some are
-- gone: every sum of bytes shrinks as that of the jobs does.
local function recount()
  local flat, old, jobs, tokens = call('HGETALL', P.size), {}, { jobs = 0 }, { 0, 0, 0 }
  for i = 1, #flat, 2 do old[flat[i]] = tonumber(flat[i + 1]) end
  local function count(member)
    local org, user, _, size = member_parts(member)
    local a, b = 'j ' .. org, 'j ' .. org .. ' ' .. user
    jobs.jobs, jobs[a], jobs[b] = jobs.jobs + 1, (jobs[a] or 0) + 1, (jobs[b] or 0) + 1
    return size
  end
  for c = 1, 3 do
    for _, member in ipairs(call('ZRANGE', P.wait[c], 0, -1)) do
      local reserved = string.sub(member, 1, #RESERVED) == RESERVED
      local size = count(reserved and string.sub(member, #RESERVED + 1) or member)
      if not reserved then tokens[c] = tokens[c] + size end
    end
  end
  for _, rec in ipairs(call('HVALS', P.claimed)) do count(string.match(rec, '^%S+ %d %d+ %d (.+)$')) end
  call('DEL', P.size) -- first, because it works when memory is full
  if jobs.jobs == 0 then return end
  local set = { 'wide', WIDE }
  for field, n in pairs(jobs) do
    local bytes = field == 'jobs' and 'bytes' or 'b' .. string.sub(field, 2)
    local of = old[field] or 0
    set[#set + 1], set[#set + 2] = field, int(n)
    set[#set + 1], set[#set + 2] = bytes, int(math.floor((old[bytes] or 0) * n / math.max(of, n)))
  end
  for c = 1, 3 do set[#set + 1], set[#set + 2] = 't' .. c, int(tokens[c]) end
  for i = 1, #set, 1000 do call('HSET', P.size, unpack(set, i, math.min(i + 999, #set))) end
end

call('ZREM', P.present, '') -- full memory allows this, and then every write after it
local there = call('HLEN', P.claimed)
for c = 1, 3 do there = there + call('ZCARD', P.wait[c]) end
if (call('HGET', P.size, 'jobs') or 0) - there ~= 0 then recount() end

local seen, out = call('HMGET', P.fair, 'looked', 'blind'), {}
local blind = math.min(tonumber(seen[2] or 0), now + grace)
if math.abs(now - tonumber(seen[1] or 0)) > grace / 2 then blind = now + grace end
call('HSET', P.fair, 'looked', int(now), 'blind', int(blind))
if blind <= now then
  for _, id in ipairs(call('ZRANGEBYSCORE', P.present, '-inf', int(now), 'LIMIT', 0, ARGV[2])) do out[#out + 1] = 'g' .. id end
end
for _, id in ipairs(call('ZRANGEBYSCORE', P.due, '-inf', int(now), 'LIMIT', 0, ARGV[2])) do out[#out + 1] = 'e' .. id end
return table.concat(out, ' ')
