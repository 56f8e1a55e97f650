-- Library: what the limit shapes share (needs time). A shape is how a limit counts. One key holds
-- the state of one limit for one subject. A shape is a table of functions over a state `st`, each
-- in its own file, such as shape_ring:
--
--   read(key, p1, p2, now)   state at `now`, nothing written; nil when Go's
--                            calendar does not include `now`
--   charge(st, n, id, nth, held)
--                            adds n, returns its place; held: part of an open hold
--   change(st, key, place, from, to, open, id, nth)
--                            the part at place becomes `to` <= from and stops being
--                            held when open; returns what was given back, 0 when
--                            the place has left the limit
--   text(st)                 the state as text for the reply
--   write(st, key, p1, p2, text)
--                            stores the state; text is optional, if already known
--   in_memory                several changes of a state may be written together
--   rest(s)                  adds the functions that few calls need; whole() calls it:
--   merge(st, place, n)      adds n held to a part at its place when that is where a
--                            charge would go; returns the new place. Optional.
--   look(st, key, p1, excess)
--                            resets_at, frees_at: the instants when nothing is left
--                            and when `excess` has gone, 0 for now (the bucket
--                            returns its fraction and its clock; Go divides)
--   frees(st, key, p1)       text of when it frees what it counts: a ring and a log ",at,amount,held" for
--                            each part, a period ",end", a bucket ",fraction"
--   forget(st, key)          drops what was charged, keeps what is held
--   refill(st)               a bucket's new refill applies from now on. Optional.
--
-- st.used is all that counts now, st.held the open holds in it. A state never goes back in time. If
-- the clock goes back a little, the state waits. If it goes back by more than BACK_US, the state
-- continues from where it was, with a lead over the clock: places are in its own time, reported
-- instants in the clock's. A calendar period always waits for its end. With st.partial they count too
-- much: see shape_log.
--
-- A full limit is only asked, not charged, so what is asked also has to remember the time: st.late says
-- that the state has a new lead, or was last written more than SEEN_US ago. Whatever reads it then
-- writes it (keep_time), at most once per SEEN_US.
--
-- These run in every call, so they are optimized for time. Redis defines the functions of a script
-- again in every run, 50 ns each: what a hold does not need is in rest(). A table of more than
-- eight fields costs as much as a command, and as much again in garbage. Strings are converted to
-- numbers by arithmetic, which is faster than tonumber(). Printing numbers costs most: '%d' is
-- three times as fast as '%.0f' and as exact on a 64 bit server, and a number given to redis.call
-- is printed with '%.17g', slower than both. Numbers stay well below 2^53.

local call, floor, max, min, fmt = redis.call, math.floor, math.max, math.min, string.format

local DAY_MS = 86400000
local GRACE_MS = 60000 -- added to the lifetime of every key
local FORGOTTEN_US = DAY_MS * 1000 -- a day, after which a dead hold no longer counts for concurrency
local BACK_US = 10000000
local SEEN_US = 5000000
local LONG_MS = 34560000000 -- 400 days: for states that never empty on their own

-- num prints an integer; int in time.lua is the same, but slower.
local function num(n) return fmt('%d', n) end
