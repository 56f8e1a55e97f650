-- expire: ends a hold whose lease has run out. What it held stays charged (its
-- maximum, or what was expected), marked estimated, and its tombstone lets a late
-- settle apply the difference; or, when a spend cap has not admitted the call, it is
-- given back as by void. Idempotent; a lease renewed meanwhile is left alone.
-- Libraries: time, shapes, ending (KEYS, ARGV and reply stand there, but 3 = max |
-- expected | none, and want = the limit's metric: cost | tokens | requests | concurrency).
-- verdict: expired | voided | renewed | gone | keys | skew

local now = now_us(ARGV[1])
local id = ARGV[2]

local ends = call('ZSCORE', KEYS[1], id)
if not ends then return reply('gone', now) end
if tonumber(ends) > now then return reply('renewed', now) end

local shapes, states = read_limits(now)
if not shapes then return reply('skew', now) end

local record = call('HGET', KEYS[2], id)
if not record then
  call('ZREM', KEYS[1], id)
  return reply('gone', now)
end
local most, expected, most_tokens, expected_tokens, text, meta =
  record:match('^%d+,(%d+),(%d+),(%d+),(%d+)|([^|]*)|(.*)$')
if not declared(text) then return reply('keys', now) end

call('ZREM', KEYS[1], id) -- first write, never refused for memory
if ARGV[3] == 'none' then
  regrade_all(shapes, states, text, function() return 0 end, true, id)
  bury(id, 'V')
  return reply('voided', now)
end
local charge, tokens = tonumber(most), tonumber(most_tokens)
if ARGV[3] == 'expected' then charge, tokens = tonumber(expected), tonumber(expected_tokens) end

local function want_of(metric, part)
  if metric == 'cost' then return charge end
  if metric == 'tokens' then return tokens end
  if metric == 'requests' then return tonumber(part:match('^%d+')) end
  return 0
end

text = regrade_all(shapes, states, text, want_of, true, id)
-- For a day, because the holder may only be cut off; not in caps, whose tombstones are
-- of everybody's calls.
bury(id, 'X,' .. num(charge) .. ',' .. most .. ',' .. num(now) .. '|' .. text .. '|' .. meta,
  ARGV[21] ~= '' and DAY_MS or 0)
book('expire', now, charge, charge, 0, 1, charge)
return reply('expired', now, charge)
