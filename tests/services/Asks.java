import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;

/** Asks a home by the JDBC driver: parameters, the driver's switch to binary, portions of rows, what there is. */
public class Asks {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0], "me", arguments[1])) {
            try (PreparedStatement asked = connection.prepareStatement("select user, n from spend where user = ? and n > ?")) {
                asked.setString(1, "u1");
                asked.setInt(2, 3);
                for (int time = 0; time < 7; time++) { // from the fifth time on, the driver asks for binary values
                    ResultSet rows = asked.executeQuery();
                    rows.next();
                    System.out.println(rows.getString(1) + " " + rows.getLong(2));
                }
            }
            connection.setAutoCommit(false);
            try (PreparedStatement asked = connection.prepareStatement("select amount from purchases")) {
                asked.setFetchSize(7);
                ResultSet rows = asked.executeQuery();
                long sum = 0;
                while (rows.next()) sum += rows.getLong(1);
                System.out.println(sum);
            }
            connection.commit();
            ResultSet tables = connection.getMetaData().getTables(null, "public", "spend%", null);
            while (tables.next()) System.out.println(tables.getString("TABLE_NAME"));
            ResultSet columns = connection.getMetaData().getColumns(null, "public", "spend", null);
            while (columns.next()) System.out.println(columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME"));
        }
    }
}
