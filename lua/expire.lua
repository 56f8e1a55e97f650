-- expire: ends holds whose lease has run out. What such a hold held stays charged (its maximum, or
-- the expected amount), marked estimated, and its tombstone lets a late settle apply the
-- difference. If a spend cap has not admitted the call, the hold is given back as by void.
-- Idempotent; a lease renewed meanwhile is left alone.
-- Libraries: time, shapes, shape_of, arguments, limits, forget, roll, endings (has KEYS, ARGV and
-- reply, but cost = max | expected | none, and want = the limit's metric: cost | tokens | requests
-- | concurrency), ending. verdict: expired | voided | renewed | gone | keys | skew

local function expire(ending)
  local id = ending.id
  local ends = call('ZSCORE', leases, id)
  if not ends then return reply('gone') end
  if tonumber(ends) > now then return reply('renewed') end
  if not read_limits(ending) then return reply('skew') end

  local record = call('HGET', holds, id)
  if not record then
    call('ZREM', leases, id)
    return reply('gone')
  end
  local most, expected, most_tokens, expected_tokens, text, meta =
    record:match('^%d+,(%d+),(%d+),(%d+),(%d+)|([^|]*)|(.*)$')
  if not declared(ending, text) then return reply('keys') end

  call('ZREM', leases, id) -- first write, never refused for lack of memory
  if ending.cost == 'none' then
    regrade_all(ending, text, function() return 0 end, true)
    bury(id, 'V')
    return reply('voided')
  end
  local charge, tokens = tonumber(most), tonumber(most_tokens)
  if ending.cost == 'expected' then charge, tokens = tonumber(expected), tonumber(expected_tokens) end

  local function want_of(metric, part)
    if metric == 'cost' then return charge end
    if metric == 'tokens' then return tokens end
    if metric == 'requests' then return tonumber(part:match('^%d+')) end
    return 0
  end

  text = regrade_all(ending, text, want_of, true)
  -- Kept for a day, because the holder may only be cut off. Not in caps, whose tombstones are those
  -- of all orgs' calls.
  bury(id, 'X,' .. num(charge) .. ',' .. most .. ',' .. num(now) .. '|' .. text .. '|' .. meta,
    ending.entry ~= '' and DAY_MS or 0)
  book(ending, 'expire', charge, charge, 0, 1, charge)
  return reply('expired', charge)
end

local replies = {}
for _ = 1, orgs + 0 do
  for _, id in ipairs(next_org()) do replies[#replies + 1] = expire(next_ending(id)) end
end
return replies
