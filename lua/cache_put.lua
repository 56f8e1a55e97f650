-- cache_put: stores an answer of an org. If the org's answers leave no room, it evicts the oldest
-- ones. Needs time, capacity.
-- KEYS 1 entries  2 ends  3 sums (capacity)  4 answers by when they were stored (ZSET id by us)
--      5 the answer (STRING), then answers that may be evicted
-- ARGV 1 now  2 org  3 bytes  4 us it lasts  5 maximum bytes of all answers (0 = no bound)  6 text
--      7 id, then the ids of the answers that may be evicted
-- A repetition replaces the answer; it is not refused if it needs no more than before.
-- If answers must be evicted that are not in KEYS, nothing is stored: call again with them.
-- Reply { "ok", evicted ids } | { "evict", ids to add } | { "full", evicted ids }
local order, answer = KEYS[4], KEYS[5]
local given, org, bytes, lasts, most, text, id = unpack(ARGV, 1, 7)
local key_of = {}
for i = 6, #KEYS do
  local key, other = KEYS[i], ARGV[i + 2]
  key_of[other] = key
end
local MOST, STALE = 100, 10 -- answers evicted by one call; expired ones removed from the order
bytes, most = tonumber(bytes), tonumber(most)
local now = now_us(given)
entries_expire(now)
for _, other in ipairs(call('ZRANGE', order, 0, STALE - 1)) do
  if not entry_of(other) then call('ZREM', order, other) end
end

-- With a bound that was lowered, the oldest are evicted even if that is not enough yet.
local _, reserved_before, written_before = entry_of(id)
local more = bytes - reserved_before - written_before
local used = tonumber(call('HGET', sums, 'all') or 0)
local need = most > 0 and used + more - most or 0
local victims, freed = {}, 0
if need > 0 then
  for _, other in ipairs(call('ZRANGE', order, 0, MOST)) do
    local whose, reserved, written = entry_of(other)
    if whose and other ~= id and freed < need and #victims < MOST then
      victims[#victims + 1] = other
      freed = freed + reserved + written
    end
  end
end
local fits = freed >= need or more <= 0
if not fits and used <= most then return { 'full' } end
for _, other in ipairs(victims) do
  if not key_of[other] then return { 'evict', unpack(victims) } end
end
for _, other in ipairs(victims) do
  call('UNLINK', key_of[other])
  entry_set(other, org, 0, 0)
  call('ZREM', order, other)
end
if not fits then return { 'full', unpack(victims) } end
call('SET', answer, text, 'PX', int(math.ceil(lasts / 1000)))
entry_set(id, org, 0, bytes, now + lasts)
call('ZADD', order, int(now), id)
entries_keep(now)
call('PEXPIRE', order, call('PTTL', ends))
return { 'ok', unpack(victims) }
