-- settle: replaces holds by the actual cost, writes ledger and roll-ups, leaves
-- tombstones. Idempotent: a replay returns the stored charge.
-- Libraries: time, shapes, shape_of, arguments, limits, roll, endings (has KEYS, ARGV and reply;
-- want = the actual amount of the limit's metric). verdict: settled | replayed | old | keys | skew
--
-- Open holds that were never extended are settled first, and what they share is written once. The
-- other holds come after these, one by one.

local at, replies = num(now), {}

-- as_taken reports whether an ending's record is an open hold on its limits that was never
-- extended, and records what is charged where.
local function as_taken(ending, record)
  local most, pos = record:match('^%d+,(%d+)[^|]*()|')
  for i = 1, #ending do
    if not pos or not state_of(ending[i].limit, now) then return false end
    local part = ending[i]
    local pattern = i == 1 and '^|(%d+) ([^ :]+):(%d+)()' or '^;(%d+) ([^ :]+):(%d+)()'
    local whole_amount, amount
    whole_amount, part.place, amount, pos = record:match(pattern, pos)
    if amount ~= whole_amount then return false end
    part.had = amount
  end
  ending.held = most
  return pos and record:byte(pos) == 124 and (#ending > 0 or record:byte(pos + 1) == 124) -- |
end

-- regrade changes a part of a hold from what it has charged to what it wants: excess is given back,
-- what is missing is charged now, over the limit if necessary.
local function regrade(part, id)
  local limit, had, want = part.limit, part.had + 0, part.want + 0
  local shape, state = limit.shape, state_of(limit, now)
  shape.change(state, limit.key, part.place, had, min(had, want), true, id, 1)
  if want > had then shape.charge(state, want - had, id, 'o', false) end
  if shape.in_memory then
    limit.changed = true
  else
    shape.write(state, limit.key, limit.p1, limit.p2)
    limit.state = nil
  end
end

-- settle_open settles open holds that were never extended.
local function settle_open(list)
  if #list > 1 then -- keys of a wrong type fail before anything is written; then each is settled alone
    call('XLEN', ledger)
    call('HLEN', today)
    call('HLEN', hours)
    call('HLEN', by_label)
  end
  local ids, tombs = {}, {}
  for i = 1, #list do ids[i] = list[i].id end
  call('ZREM', leases, unpack(ids)) -- first write, never refused for lack of memory
  for i = 1, #list do
    local ending = list[i]
    for k = 1, #ending do regrade(ending[k], ending.id) end
    local overrun = ending.cost - ending.held
    ending.overrun = overrun > 0 and num(overrun) or '0'
    tombs[2 * i - 1], tombs[2 * i] = ending.id, 'S,' .. ending.cost .. ',' .. ending.overrun .. ',' .. at
  end
  write_limits()
  call('HDEL', holds, unpack(ids))
  call('HSET', done, unpack(tombs))
  if call('PTTL', done) - done_life < -600000 then call('PEXPIRE', done, done_life) end

  local day, hour = sums_of(today, '', rollup_life), sums_of(hours, hour_of(now), HOURS_MS)
  local labels = sums_of(by_label, '', rollup_life)
  for i = 1, #list do
    local ending = list[i]
    local cost, overrun = ending.cost, ending.overrun
    if ending.entry ~= '' then
      call('XADD', ledger, 'MAXLEN', '~', ledger_length, '*', 'e', ending.entry .. ',"kind":"settle","at_us":' .. at ..
        ',"cost_nano":' .. cost .. ',"total_nano":' .. cost .. ',"overrun_nano":' .. overrun .. '}')
      add_to_sums(ending.sums, cost + 0)
      local estimated = ending.estimated and cost or '0'
      sums_add(hour, ending.field, most_fields, ending.usage, cost, estimated, overrun)
      if sums_add(day, ending.field, most_fields, ending.usage, cost, estimated, overrun) then
        call('PEXPIRE', ledger, ledger_life) -- at least once a day
      end
      for field in ending.labels:gmatch('[^,]+') do
        sums_add(labels, field, most_fields, ending.usage, cost, estimated, overrun)
      end
    end
    replies[ending.i] = 'settled,' .. at .. ',' .. cost .. ',' .. overrun .. ',0,' .. at
  end
  sums_write(hour)
  sums_write(day)
  sums_write(labels)
end

-- settle_others settles all others.
local function settle_others(list)
  --+ forget
  --+ ending
  local function settle_other(ending)
    --+ settle_other
  end
  for _, ending in ipairs(list) do replies[ending.i] = settle_other(ending) end
end

for _ = 1, orgs + 0 do
  local ids = next_org()
  local records = call('HMGET', holds, unpack(ids))
  local open, others, first = {}, {}, #replies
  for i, id in ipairs(ids) do
    local ending = next_ending(id)
    ending.i, replies[first + i] = first + i, false
    local list = today and records[i] and as_taken(ending, records[i]) and open or others
    list[#list + 1] = ending
  end
  if #open > 0 then settle_open(open) end
  if #others > 0 then settle_others(others) end
end
return replies
