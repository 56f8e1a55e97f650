-- void: gives all of a hold back; it leaves no trace in any limit. Idempotent.
-- Voiding an unknown id leaves a tombstone, so that a hold whose reply was lost
-- and that arrives later holds nothing. Voiding an expired hold takes its charge
-- back. A settled call stays settled.
-- Libraries: time, shapes, ending (KEYS, ARGV and reply stand there; want = 0).
-- verdict: voided | replayed | keys | skew

local now = now_us(ARGV[1])
local id = ARGV[2]

local tomb = call('HGET', KEYS[3], id)
if tomb and tomb:sub(1, 1) ~= 'X' then
  local charged, overrun = tomb:match('^S,(%d+),(%d+)')
  return reply('replayed', now, charged, overrun)
end

local shapes, states = read_limits(now)
if not shapes then return reply('skew', now) end

local record = call('HGET', KEYS[2], id)
local before, text = 0, ''
if record then
  text = record:match('^[^|]*|([^|]*)|')
elseif tomb then
  before, text = tomb:match('^X,(%d+),%d+,%d+|([^|]*)|')
  before = tonumber(before)
end
if (record or tomb) and not declared(text) then return reply('keys', now) end

call('ZREM', KEYS[1], id) -- first write, never refused for memory
if text ~= '' then regrade_all(shapes, states, text, as_given, record, id) end
bury(id, 'V')
if tomb then book('void', now, -before, 0, 0, -1, -before) end
return reply('voided', now, 0, 0, not record)
