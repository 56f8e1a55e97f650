-- Part of settle: settles what is not an open hold, or was extended (needs ending).
--
-- A hold that expired is corrected by the difference. An unknown id is charged in full within the
-- horizon; an older one goes to the reconciliation list.

local id, cost = ending.id, ending.cost + 0
local record = call('HGET', holds, id)
local tomb = call('HGET', done, id)
if tomb and tomb:sub(1, 1) == 'S' then
  local charged, overrun, settled = tomb:match('^S,(%d+),(%d+),(%d+)$')
  return reply('replayed', charged, overrun, false, settled)
end
if not read_limits(ending) then return reply('skew') end

local text, before, most = '', 0, ending.most
local expired = tomb and tomb:sub(1, 1) == 'X'
if record then
  most, text = record:match('^%d+,(%d+)[^|]*|([^|]*)|')
elseif expired then
  before, most, text = tomb:match('^X,(%d+),(%d+),%d+|([^|]*)|')
  before = tonumber(before)
end
if (record or expired) and not declared(ending, text) then return reply('keys') end

call('ZREM', leases, id) -- first write, never refused for lack of memory
if not record and not tomb then
  local age = now - ending.since
  if age > tonumber(horizon) or age < -600000000 then
    set_aside(ending)
    return reply('old')
  end
end

local overrun = max(cost - most, 0)
regrade_all(ending, text, as_given, record)
bury(id, fmt('S,%d,%d,%d', cost, overrun, now))

local estimated = (ending.estimated and cost or 0) - before
book(ending, record and 'settle' or 'late', cost - before, cost, overrun, expired and 0 or 1, estimated)
return reply('settled', cost, overrun, not record)
