-- identity_commit: changes records of identities, all or nothing, adds one audit entry, and
-- notifies every process. Idempotent on the random number while it is the last change; a later
-- repetition finds changed texts and replies "conflict".
--
-- KEYS  1 records (HASH)   2 version (a count)   3 last (id of the last change)
--       4 changes (STREAM, id <version>-<random>: fields that changed)   5 audit (STREAM)
-- ARGV  1 random (1 to 15 digits)  2 channel  3 how many changes to keep
--       4 audit entry  5 about how many of those to keep
--       6.. per record: field, text that it must have now (empty: none),
--       new text (empty: removed)
-- Reply "done <id>" or "conflict <field>"

local call = redis.call
local records, version, last_change, changes, audit = unpack(KEYS)
local random, channel, most_changes, entry, most_entries = unpack(ARGV, 1, 5)
local last = call('GET', last_change) or ''
if last:match('-(%d+)$') == random then return 'done ' .. last end
for i = 6, #ARGV, 3 do
  local field, old = ARGV[i], ARGV[i + 1]
  if (call('HGET', records, field) or '') ~= old then return 'conflict ' .. field end
end
local id = string.format('%d', call('INCR', version)) .. '-' .. random
local fields = {}
for i = 6, #ARGV, 3 do
  local field, new = ARGV[i], ARGV[i + 2]
  fields[#fields + 1] = field
  if new == '' then
    call('HDEL', records, field)
  else
    call('HSET', records, field, new)
  end
end
call('XADD', changes, 'MAXLEN', '~', most_changes, id, 'f', table.concat(fields, '\n'))
call('SET', last_change, id)
call('XADD', audit, 'MAXLEN', '~', most_entries, '*', 'e', entry)
publish(channel, id)
return 'done ' .. id
