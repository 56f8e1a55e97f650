-- void: gives back all of a hold, without a trace in any limit. Idempotent. Voiding an unknown id
-- leaves a tombstone, so that a hold whose reply was lost and that arrives later holds nothing.
-- Voiding an expired hold reverses its charge. A settled call stays settled.
-- Libraries: time, shapes, shape_of, arguments, limits, forget, roll, endings (has KEYS, ARGV and
-- reply; want = 0), ending. verdict: voided | replayed | keys | skew

local function void(ending)
  local id = ending.id
  local tomb = call('HGET', done, id)
  if tomb and tomb:sub(1, 1) ~= 'X' then
    local charged, overrun = tomb:match('^S,(%d+),(%d+)')
    return reply('replayed', charged, overrun)
  end
  if not read_limits(ending) then return reply('skew') end

  local record = call('HGET', holds, id)
  local before, text = 0, ''
  if record then
    text = record:match('^[^|]*|([^|]*)|')
  elseif tomb then
    before, text = tomb:match('^X,(%d+),%d+,%d+|([^|]*)|')
    before = tonumber(before)
  end
  if (record or tomb) and not declared(ending, text) then return reply('keys') end

  call('ZREM', leases, id) -- first write, never refused for lack of memory
  if text ~= '' then regrade_all(ending, text, as_given, record) end
  bury(id, 'V')
  if tomb then book(ending, 'void', -before, 0, 0, -1, -before) end
  return reply('voided', 0, 0, not record)
end

local replies = {}
for _ = 1, orgs + 0 do
  for _, id in ipairs(next_org()) do replies[#replies + 1] = void(next_ending(id)) end
end
return replies
