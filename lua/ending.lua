-- Library: ends holds that are not open or were extended (needs endings, roll).

local RECONCILE_MAX = 100000

local function reply(verdict, charged, overrun, late, at)
  return fmt('%s,%d,%d,%d,%d,%d', verdict, now, charged or 0, overrun or 0, late and 1 or 0, at or now)
end

-- read_limits reads the states of a call's limits; false: Go's days or calendar do not include now.
local function read_limits(ending)
  forget_limits()
  for i = 1, #ending do
    if not state_of(ending[i].limit, now) then return false end
  end
  return today
end

-- declared reports whether a call declares as many limits as a hold's text has.
local function declared(ending, text)
  local _, more = text:gsub(';', '')
  return (text == '' and 0 or more + 1) == #ending
end

-- regrade changes one limit of a hold from what it has charged to `want`: excess is given back,
-- newest part first; what is missing is charged now, over the limit if necessary. It returns the
-- limit's text with what stays charged at each place.
local function regrade(limit, text, want, open, id)
  local shape, state = limit.shape, limit.state
  local had = tonumber(text:match('^%d+') or 0)
  local places, amounts = {}, {}
  for place, n in text:gmatch('([^ ]+):([^ ]+)') do
    places[#places + 1], amounts[#amounts + 1] = place, tonumber(n)
  end
  local back = max(had - want, 0)
  for k = #places, 1, -1 do
    local from = amounts[k]
    local to = max(from - back, 0)
    back = back - (from - to)
    if open or to < from then
      amounts[k] = from - shape.change(state, limit.key, places[k], from, to, open, id, k)
    end
  end
  if want > had then shape.charge(state, want - had, id, 'o', false) end
  for k = 1, #places do places[k] = places[k] .. ':' .. num(amounts[k]) end
  return num(want) .. ' ' .. table.concat(places, ' ')
end

local function as_given(want) return tonumber(want) end

-- regrade_all regrades every limit, writes the states and returns the new texts.
local function regrade_all(ending, text, want_of, open)
  local texts, parts = {}, {}
  for part in (text .. ';'):gmatch('([^;]*);') do parts[#parts + 1] = part end
  for i = 1, #ending do
    local limit, part = ending[i].limit, parts[i] or ''
    texts[i] = regrade(limit, part, want_of(ending[i].want, part), open, ending.id)
    limit.shape.write(limit.state, limit.key, limit.p1, limit.p2)
  end
  return table.concat(texts, ';')
end

-- bury writes the tombstone, kept for at least `least` ms, and removes the record.
local function bury(id, text, least)
  call('HDEL', holds, id)
  call('HSET', done, id, text)
  local life = max(tonumber(done_life), least or 0)
  if call('PTTL', done) < life then call('PEXPIRE', done, num(life)) end
end

-- book appends to the ledger and adds to the day. `cost` is what this entry adds to the bill,
-- negative when a late settle corrects an expiry.
local function book(ending, kind, cost, total, overrun, calls, estimated)
  if ending.entry == '' then return end
  local entry = ending.entry .. fmt(',"kind":"%s","at_us":%d,"cost_nano":%d,"total_nano":%d,"overrun_nano":%d}',
    kind, now, cost, total, overrun)
  call('XADD', ledger, 'MAXLEN', '~', ledger_length, '*', 'e', entry)
  add_to_sums(ending.sums, cost)
  if roll(today, hours, now, ending.field, most_fields, rollup_life, ending.usage,
    cost, calls, estimated, overrun, 0) then
    call('PEXPIRE', ledger, ledger_life) -- at least once a day
  end
  roll_labels(by_label, ending.labels, most_fields, rollup_life, ending.usage, cost, calls, estimated, overrun, 0)
end

-- set_aside lists a charge that can no longer be distinguished from a replay.
local function set_aside(ending)
  if ending.entry == '' then return end
  call('RPUSH', reconcile, ending.entry .. fmt(',"at_us":%d,"cost_nano":%s}', now, ending.cost))
  call('LTRIM', reconcile, num(-RECONCILE_MAX), '-1')
  call('PEXPIRE', reconcile, ledger_life)
end
