-- Part of settle: what is not an open hold as it was taken (needs shapes, roll, ending).
--
-- A hold that expired is corrected by the difference. An unknown id is charged in
-- full within the horizon; an older one goes to the reconciliation list.

local tomb = call('HGET', KEYS[3], id)
if tomb and tomb:sub(1, 1) == 'S' then
  local charged, overrun, at = tomb:match('^S,(%d+),(%d+),(%d+)$')
  return reply('replayed', now, charged, overrun, false, at)
end

local shapes, states = read_limits(now)
if not shapes then return reply('skew', now) end

local text, before = '', 0
most = ARGV[4]
local expired = tomb and tomb:sub(1, 1) == 'X'
if record then
  most, text = record:match('^%d+,(%d+)[^|]*|([^|]*)|')
elseif expired then
  before, most, text = tomb:match('^X,(%d+),(%d+),%d+|([^|]*)|')
  before = tonumber(before)
end
if (record or expired) and not declared(text) then return reply('keys', now) end

call('ZREM', KEYS[1], id) -- first write, never refused for memory
if not record and not tomb then
  local age = now - ARGV[6]
  if age > tonumber(ARGV[7]) or age < -600000000 then
    reconcile(now)
    return reply('old', now)
  end
end

local overrun = max(cost - most, 0)
regrade_all(shapes, states, text, as_given, record, id)
bury(id, fmt('S,%d,%d,%d', cost, overrun, now))

local estimated = (ARGV[5] == '1' and cost or 0) - before
book(record and 'settle' or 'late', now, cost - before, cost, overrun, expired and 0 or 1, estimated)
return reply('settled', now, cost, overrun, not record)
