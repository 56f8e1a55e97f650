-- identity_commit: changes records of identities, all or nothing, with one entry
-- of the audit, and tells every process. Idempotent on ARGV 1 while it is the last
-- change; a later repetition finds other texts and answers "conflict".
--
-- KEYS  1 records (HASH)   2 version (a count)   3 last (id of the last change)
--       4 changes (STREAM, id <version>-<random>: fields that changed)   5 audit (STREAM)
-- ARGV  1 random (1 to 15 digits)  2 channel  3 how many changes to keep
--       4 audit entry  5 how many of those to keep, about
--       6.. per record: field, text that must stand there now (empty: none),
--       new text (empty: removed)
-- Reply "done <id>" or "conflict <field>"

local call = redis.call
local fields = {}
local last = call('GET', KEYS[3]) or ''
if last:match('-(%d+)$') == ARGV[1] then return 'done ' .. last end
for i = 6, #ARGV, 3 do
  if (call('HGET', KEYS[1], ARGV[i]) or '') ~= ARGV[i + 1] then
    return 'conflict ' .. ARGV[i]
  end
end
-- First write, refused by Redis when memory is full: then nothing is changed.
local id = string.format('%d', call('INCR', KEYS[2])) .. '-' .. ARGV[1]
for i = 6, #ARGV, 3 do
  fields[#fields + 1] = ARGV[i]
  if ARGV[i + 2] == '' then
    call('HDEL', KEYS[1], ARGV[i])
  else
    call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
  end
end
call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[3], id, 'f', table.concat(fields, '\n'))
call('SET', KEYS[3], id)
call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[5], '*', 'e', ARGV[4])
call('PUBLISH', ARGV[2], id)
return 'done ' .. id
