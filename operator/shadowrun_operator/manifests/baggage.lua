-- Takes the entries `shadow` and `shadow.run` (`shadowrun_mirror.baggage` has the rule) out of a request's baggage; every
-- other entry keeps its bytes, its order and its line. Runs only on requests that carry such an entry.
--
-- It holds up a worker of Envoy's and all customers there, so each step takes time in proportion to the headers' bytes:
-- a match begins at a comma only, what follows a repetition is a byte it cannot have taken, and no string is made for
-- each entry or looked up for each line.
local OURS = { ",[ \t]*shadow[ \t]*%f[=;,][^,]*", ",[ \t]*shadow%.run[ \t]*%f[=;,][^,]*" }

function envoy_on_request(handle)
  local headers = handle:headers()
  local lines = {}
  for name, value in pairs(headers) do
    if name == "baggage" then
      local kept = "," .. value .. ","
      for _, ours in ipairs(OURS) do
        kept = kept:gsub(ours, "")
      end
      if kept ~= "," then
        lines[#lines + 1] = kept:sub(2, -2)
      end
    end
  end
  headers:remove("baggage")
  for _, line in ipairs(lines) do
    headers:add("baggage", line)
  end
end
