-- Takes the entries `shadow` and `shadow.run` out of a request's baggage; every other entry keeps its bytes, its order
-- and its line. Runs only on requests that carry such an entry.
function envoy_on_request(handle)
  local headers = handle:headers()
  local lines = {}
  for index = 0, headers:getNumValues("baggage") - 1 do
    local kept = {}
    for member in (headers:getAtIndex("baggage", index) .. ","):gmatch("([^,]*),") do
      local name = member:match("^[ \t]*([^=;]*)"):gsub("[ \t]+$", "")
      if name ~= "shadow" and name ~= "shadow.run" then
        kept[#kept + 1] = member
      end
    end
    if #kept > 0 then
      lines[#lines + 1] = table.concat(kept, ",")
    end
  end
  headers:remove("baggage")
  for _, line in ipairs(lines) do
    headers:add("baggage", line)
  end
end
